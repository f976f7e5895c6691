//! A small engine with a vocabulary of bytes, for tests of the libtorch engine.
#![allow(dead_code)]

use std::path::Path;
use std::sync::Arc;

use palimpsest::engine::{EngineError, SupervisedBatch, SupervisedPart, SupervisedRow};
use palimpsest::experiment::{DecoderSettings, DeviceSetting, EngineSettings};
use palimpsest::torch::{TorchEngine, Vocabulary};

/// Ids of the small vocabulary.
pub const IDS: u32 = 96;

/// Id n is the byte 32 + n, so ids are printable ASCII.
pub struct Ascii;

impl Vocabulary for Ascii {
    fn size(&self) -> usize {
        IDS as usize
    }
    fn bytes(&self, id: u32) -> &[u8] {
        const BYTES: [u8; IDS as usize] = {
            let mut bytes = [0; IDS as usize];
            let mut i = 0;
            while i < IDS as usize {
                bytes[i] = 32 + i as u8;
                i += 1;
            }
            bytes
        };
        BYTES.get(id as usize).map_or(&[], std::slice::from_ref)
    }
    fn save(&self, _: &Path) -> Result<(), EngineError> {
        Ok(())
    }
}

pub fn shape() -> DecoderSettings {
    DecoderSettings {
        hidden_size: 32,
        num_hidden_layers: 2,
        num_attention_heads: 4,
        num_key_value_heads: 2,
        intermediate_size: 48,
        rope_theta: 1000.0,
        max_position_embeddings: 256,
        initializer_range: 0.2,
        vocab_size: i64::from(IDS),
    }
}

pub fn settings() -> EngineSettings {
    EngineSettings {
        device: DeviceSetting::Cpu,
        threads: 1,
        cache_bytes: 1 << 24,
        ..EngineSettings::default()
    }
}

pub fn engine(seed: u64) -> TorchEngine {
    TorchEngine::new(&shape(), seed, Arc::new(Ascii), &settings()).unwrap()
}

/// Ids that look random but repeat: `length` of them.
pub fn ids(seed: u32, length: usize) -> Vec<u32> {
    let mut x = seed.wrapping_mul(2_654_435_761).wrapping_add(12_345);
    (0..length)
        .map(|_| {
            x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (x >> 16) % IDS
        })
        .collect()
}

pub fn row(seed: u32, length: usize, gap: u32) -> SupervisedRow {
    SupervisedRow {
        ids: ids(seed, length),
        mask: (0..length).map(|i| i > 2).collect(),
        positions: (0..length as u32)
            .map(|i| i + if i > 5 { gap } else { 0 })
            .collect(),
    }
}

pub fn supervised(step: u32, lr: f32, aid_weight: f32) -> SupervisedBatch {
    let part = |name: &str, weight, rows| SupervisedPart {
        name: name.into(),
        weight,
        rows,
    };
    SupervisedBatch {
        parts: vec![
            part("full", 1.0, vec![row(1, 14, 0), row(2, 20, 3)]),
            part("probe", 0.5, vec![row(3, 9, 0)]),
        ],
        matrix_lr: lr,
        other_lr: lr,
        beta2: 0.98,
        weight_decay: 0.01,
        grad_clip: 1.0,
        aid_weight,
        address: (7, step),
    }
}
