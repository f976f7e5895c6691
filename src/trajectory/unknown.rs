//! Numbers that may be unknown, in JSON: NaN is written as `null`, and read back.

use serde::{Deserialize as _, Deserializer, Serializer};

/// Writes NaN as `null`.
pub(super) fn serialize<S: Serializer>(numbers: &[f32], serializer: S) -> Result<S::Ok, S::Error> {
    let known = |number: &f32| Some(*number).filter(|number| !number.is_nan());
    serializer.collect_seq(numbers.iter().map(known))
}

/// Reads `null` as NaN.
pub(super) fn deserialize<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<f32>, D::Error> {
    let numbers = Vec::<Option<f32>>::deserialize(deserializer)?;
    Ok(numbers
        .into_iter()
        .map(|number| number.unwrap_or(f32::NAN))
        .collect())
}
