//! The engine in libtorch: one decoder (Llama, Qwen2, Qwen3) that generates, scores and learns with the same
//! weights, on the CPU or one CUDA device.
//!
//! Reads and writes plain ids and floats; no tensor leaves this folder. On the CPU the same
//! requests give the same bits at a given number of threads, and no random number comes from
//! libtorch: initial weights, sampling and aids draw from [`crate::random`].

mod attention;
mod average;
mod batch;
mod blocks;
mod bridge;
mod budget;
mod checkpoint;
mod config;
mod decoder;
mod encoder;
mod fields;
mod generate;
mod gradients;
mod learn;
mod linear;
mod lora;
pub mod loss;
mod micro;
mod mini_batch;
mod muon;
mod native;
mod optimizer;
mod paged;
mod precision;
mod recompute;
mod rope;
mod sample;
mod scheduler;
mod score;
mod sequence;
mod state;
mod supervise;
mod tensor_file;
mod variants;
mod vocabulary;
mod weight_files;
mod weights;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

use tch::Device;

pub use encoder::{DenseIndex, Encoder, NearIndex, Role};
pub use vocabulary::Vocabulary;

use crate::engine::{
    Engine, EngineError, GenerateRequest, Generated, LearnBatch, LearnReport, ScoreRequest, Scored,
    SupervisedBatch, SupervisedReport,
};
use crate::experiment::{DecoderSettings, DeviceSetting, EngineSettings, LoraSettings};
use crate::trajectory::TrajectoryId;
use decoder::Decoder;
use generate::Generation;
use gradients::Gradients;
use state::TrainingState;

/// CUDA devices that this build and machine have.
#[must_use]
pub fn cuda_devices() -> i64 {
    tch::Cuda::device_count()
}

/// Sets the number of threads of libtorch's operators, for the whole process.
pub fn set_threads(threads: u32) {
    tch::set_num_threads(i32::try_from(threads.max(1)).unwrap_or(i32::MAX));
}

/// The engine in libtorch. Owns the weights, the turns under way with their cache, and the optimizers; lives on one thread.
pub struct TorchEngine {
    decoder: Decoder,
    vocabulary: Arc<dyn Vocabulary + Send + Sync>,
    training: TrainingState,
    gradients: Gradients,
    generation: Generation,
}

impl TorchEngine {
    /// New weights of this shape. The same seed gives the same weights everywhere.
    ///
    /// # Errors
    /// [`EngineError::BadRequest`] for a shape that does not fit together, a vocabulary smaller
    /// than the tokenizer's, or a device that is not there.
    pub fn new(
        shape: &DecoderSettings,
        seed: u64,
        tokenizer: Arc<dyn Vocabulary + Send + Sync>,
        settings: &EngineSettings,
    ) -> Result<Self, EngineError> {
        config::check_shape(shape, None)
            .map_err(|rule| EngineError::BadRequest(format!("the decoder's shape: {rule}")))?;
        checkpoint::check_vocabulary(shape.vocab_size, &*tokenizer)
            .map_err(EngineError::BadRequest)?;
        let device = prepare(settings)?;
        guarded(|| {
            Ok(Self {
                decoder: Decoder::new(config::new_shape(shape), seed, device),
                vocabulary: tokenizer,
                training: TrainingState::default(),
                gradients: Gradients::default(),
                generation: Generation::new(settings.cache_bytes),
            })
        })
    }

    /// The weights of a Hugging Face folder: config.json of a Llama, Qwen2 or Qwen3, and
    /// model.safetensors, or its shards with their index, in f32, bf16 or f16. They are computed with
    /// in f32.
    ///
    /// # Errors
    /// [`EngineError::BadFile`] naming the file, the field, the rule and the remedy;
    /// [`EngineError::BadRequest`] for a device that is not there.
    pub fn from_folder(
        folder: &Path,
        tokenizer: Arc<dyn Vocabulary + Send + Sync>,
        settings: &EngineSettings,
    ) -> Result<Self, EngineError> {
        let device = prepare(settings)?;
        guarded(|| {
            Ok(Self {
                decoder: checkpoint::read_decoder(folder, &*tokenizer, device)?,
                vocabulary: tokenizer,
                training: TrainingState::default(),
                gradients: Gradients::default(),
                generation: Generation::new(settings.cache_bytes),
            })
        })
    }

    /// The decoder's shape.
    #[must_use]
    pub fn shape(&self) -> &DecoderSettings {
        &self.decoder.shape.settings
    }

    /// How often a turn lost its cache to another, as memory ran out.
    #[must_use]
    pub fn preempted(&self) -> u64 {
        self.generation.preempted()
    }

    /// Seconds spent on who runs in which step and what was written, apart from computing it.
    #[must_use]
    pub fn scheduling_seconds(&self) -> f64 {
        self.generation.scheduling().as_secs_f64()
    }

    /// Adapters become a part of the weights, which all learn from now on.
    fn merge_adapters(&mut self) {
        if self.decoder.has_adapters() {
            self.decoder = self.decoder.merged();
            self.generation.forget_caches();
        }
    }

    /// Number of weights that learn.
    #[must_use]
    pub fn parameter_count(&self) -> u64 {
        let parameters = self.decoder.parameters();
        parameters.iter().map(|p| p.tensor.numel() as u64).sum()
    }
}

impl Engine for TorchEngine {
    fn submit(&mut self, requests: Vec<GenerateRequest>) -> Result<(), EngineError> {
        guarded(|| self.generation.submit(&self.decoder, requests))
    }

    fn step(&mut self) -> Result<Vec<Generated>, EngineError> {
        let (decoder, vocabulary) = (&self.decoder, &*self.vocabulary);
        guarded(|| self.generation.step(decoder, vocabulary))
            .inspect_err(|_| self.generation.clear())
    }

    fn unfinished(&self) -> usize {
        self.generation.unfinished()
    }

    fn release(&mut self, trajectories: &[TrajectoryId]) -> usize {
        self.generation.release(trajectories)
    }

    fn score(&mut self, requests: &[ScoreRequest]) -> Result<Vec<Scored>, EngineError> {
        guarded(|| score::score_under(&self.decoder, &self.training, requests))
    }

    fn learn(&mut self, batch: &LearnBatch) -> Result<LearnReport, EngineError> {
        self.generation.forget_caches();
        let TrainingState {
            learner,
            reference,
            average,
            ..
        } = &mut self.training;
        guarded(|| {
            let moved = average::ready(average.as_ref(), batch.knobs.average_decay)?;
            let gradients = &mut self.gradients;
            let report =
                learn::learn(&self.decoder, learner, gradients, reference.as_ref(), batch)?;
            let moves = report.mini_batches.iter().any(|mini| !mini.skipped);
            if let Some((average, decay)) = moved.filter(|_| moves) {
                average::follow(average, &self.decoder, decay);
            }
            Ok(report)
        })
    }

    fn supervise(&mut self, batch: &SupervisedBatch) -> Result<SupervisedReport, EngineError> {
        self.merge_adapters();
        self.generation.forget_caches();
        guarded(|| {
            let cold_start = &mut self.training.cold_start;
            supervise::supervise(&self.decoder, cold_start, &mut self.gradients, batch)
        })
    }

    fn freeze_reference(&mut self) {
        // With adapters it is what they stand on: no second copy.
        self.training.reference = Some(match self.decoder.has_adapters() {
            true => self.decoder.without_adapters(),
            false => self.decoder.copy(),
        });
    }

    fn begin_average(&mut self) {
        self.training.average = Some(self.decoder.copy());
    }

    fn begin_rl(&mut self) {
        self.merge_adapters();
        self.training.cold_start = supervise::ColdStart::default();
        self.training.learner = optimizer::AdamW::default();
    }

    fn begin_adapters(&mut self, adapters: &LoraSettings, seed: u64) -> Result<(), EngineError> {
        self.merge_adapters();
        guarded(|| {
            lora::begin(&mut self.decoder, adapters, seed);
            Ok(())
        })
    }

    fn save(&mut self, folder: &Path, with_optimizer: bool) -> Result<(), EngineError> {
        guarded(|| {
            if with_optimizer {
                checkpoint::write_decoder(&self.decoder, folder)?;
                lora::save(&self.decoder, folder)?;
                self.training.save(folder, &self.decoder)?;
            } else {
                let decoder = self.decoder.has_adapters().then(|| self.decoder.merged());
                let decoder = decoder.as_ref().unwrap_or(&self.decoder);
                checkpoint::write_decoder(decoder, folder)?;
                lora::save(decoder, folder)?;
            }
            self.vocabulary.save(folder)
        })
    }

    fn load(&mut self, folder: &Path, with_optimizer: bool) -> Result<(), EngineError> {
        guarded(|| {
            let device = self.decoder.device;
            let decoder = checkpoint::read_decoder(folder, &*self.vocabulary, device)?;
            self.training = if with_optimizer {
                TrainingState::load(folder, &decoder)?
            } else {
                TrainingState::default()
            };
            self.decoder = decoder;
            self.generation.clear();
            Ok(())
        })
    }
}

/// Sets threads and finds the device.
fn prepare(settings: &EngineSettings) -> Result<Device, EngineError> {
    set_threads(match settings.threads {
        0 => std::thread::available_parallelism().map_or(1, |n| n.get() as u32),
        threads => threads,
    });
    match settings.device {
        DeviceSetting::Cpu => Ok(Device::Cpu),
        DeviceSetting::Auto => Ok(Device::cuda_if_available()),
        DeviceSetting::Cuda(number) if i64::from(number) < cuda_devices() => {
            Ok(Device::Cuda(number as usize))
        }
        DeviceSetting::Cuda(number) => Err(EngineError::BadRequest(format!(
            "device cuda({number}) is not there: this build and machine have {} CUDA devices; use \
             cpu or auto",
            cuda_devices()
        ))),
    }
}

/// Runs `work`; an operator that libtorch refuses (memory, above all) becomes an error. tch's short
/// forms panic, and the sums of a model are unreadable in its long ones.
fn guarded<T>(work: impl FnOnce() -> Result<T, EngineError>) -> Result<T, EngineError> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let text = panic
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| panic.downcast_ref::<&str>().copied())
            .unwrap_or("an operator of libtorch failed");
        Err(failure(text))
    })
}

/// What libtorch's allocators say, on the processor and on CUDA, and C++ itself.
const NO_MEMORY: [&str; 3] = ["can't allocate memory", "out of memory", "bad_alloc"];

/// The error behind an exception of libtorch.
fn failure(text: &str) -> EngineError {
    let mut lines = text.lines();
    match lines.find(|line| NO_MEMORY.iter().any(|said| line.contains(said))) {
        Some(line) => EngineError::OutOfMemory(line.trim().to_owned()),
        None => EngineError::Backend(text.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_is_not_there_is_told_as_such_and_other_failures_as_libtorch_says() {
        // Four petabytes: more than any address space holds.
        let huge = guarded(|| Ok(tch::Tensor::zeros([1 << 50], tch::kind::FLOAT_CPU)));
        let Err(EngineError::OutOfMemory(said)) = huge else {
            panic!("{huge:?}");
        };
        assert!(said.contains("4503599627370496 bytes"), "{said}");
        assert!(!said.contains('\n'), "{said}");
        let wrong = guarded(|| {
            let ones = tch::Tensor::ones([2, 3], tch::kind::FLOAT_CPU);
            Ok(ones.matmul(&ones))
        });
        assert!(matches!(wrong, Err(EngineError::Backend(_))), "{wrong:?}");
    }
}
