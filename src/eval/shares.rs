//! Shares by name, as JSON has them: `{"answered": 0.5, ..}`.

use std::collections::BTreeMap;

use serde::{Deserialize as _, Deserializer, Serializer};

use crate::trajectory::{FormatRule, StopReason};

/// Shares of the ways to end, in the order of [`StopReason::ALL`].
pub mod stop {
    use super::{Deserializer, Serializer, StopReason, read, write};

    /// Writes the shares under their names.
    ///
    /// # Errors
    /// Those of the serializer.
    pub fn serialize<S: Serializer>(
        shares: &[f64; StopReason::COUNT],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        write(StopReason::ALL.map(StopReason::name), shares, serializer)
    }

    /// Reads shares; one that is not there is 0.
    ///
    /// # Errors
    /// Those of the deserializer.
    pub fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<[f64; StopReason::COUNT], D::Error> {
        read(StopReason::ALL.map(StopReason::name), deserializer)
    }
}

/// Shares of turns by the rule that they broke, in the order of [`FormatRule::ALL`].
pub mod format {
    use super::{Deserializer, FormatRule, Serializer, read, write};

    /// Writes the shares under their names.
    ///
    /// # Errors
    /// Those of the serializer.
    pub fn serialize<S: Serializer>(
        shares: &[f64; FormatRule::COUNT],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        write(FormatRule::ALL.map(FormatRule::name), shares, serializer)
    }

    /// Reads shares; one that is not there is 0.
    ///
    /// # Errors
    /// Those of the deserializer.
    pub fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<[f64; FormatRule::COUNT], D::Error> {
        read(FormatRule::ALL.map(FormatRule::name), deserializer)
    }
}

fn write<S: Serializer, const N: usize>(
    names: [&str; N],
    shares: &[f64; N],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_map(names.iter().zip(shares))
}

fn read<'de, D: Deserializer<'de>, const N: usize>(
    names: [&str; N],
    deserializer: D,
) -> Result<[f64; N], D::Error> {
    let shares = BTreeMap::<String, f64>::deserialize(deserializer)?;
    Ok(names.map(|name| shares.get(name).copied().unwrap_or(0.0)))
}
