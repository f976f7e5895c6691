//! The kind of numbers that the learner's passes compute with. The weights themselves, the gradients that add up
//! at them, their norm, the moments, and everything from the log-softmax on are f32.

use tch::{Device, Kind};

use crate::experiment::Precision;

use super::decoder::Decoder;

/// The decoder in the kind that `precision` asks for; none if that is the kind of its weights. Gradients
/// flow back into the weights.
pub(super) fn cast(decoder: &Decoder, precision: Precision) -> Option<Decoder> {
    let bf16 = match precision {
        Precision::F32 => false,
        Precision::Bf16 => true,
        Precision::Auto => has_bf16(decoder.device),
    };
    bf16.then(|| decoder.in_kind(Kind::BFloat16))
}

/// Whether the device has instructions for bf16; without them it is several times slower than f32.
fn has_bf16(device: Device) -> bool {
    match device {
        Device::Cpu => {
            #[cfg(target_arch = "x86_64")]
            {
                is_x86_feature_detected!("avx512bf16")
            }
            #[cfg(not(target_arch = "x86_64"))]
            {
                false
            }
        }
        Device::Cuda(_) => true,
        _ => false,
    }
}
