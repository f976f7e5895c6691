//! The engine in libtorch: one Qwen2-style decoder that generates, scores and learns with the same
//! weights, on the CPU or one CUDA device.
//!
//! Reads and writes plain ids and floats; no tensor leaves this folder. On the CPU the same
//! requests give the same bits at a given number of threads, and no random number comes from
//! libtorch: initial weights, sampling and aids draw from [`crate::random`].

mod batch;
mod cache;
mod checkpoint;
mod decoder;
mod encoder;
mod generate;
mod learn;
pub mod loss;
mod micro;
mod muon;
mod optimizer;
mod sample;
mod score;
mod state;
mod supervise;
mod tensor_file;
mod vocabulary;
mod weights;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

use tch::Device;

pub use encoder::{DenseIndex, Encoder, Role};
pub use vocabulary::Vocabulary;

use crate::engine::{
    Engine, EngineError, GenerateRequest, Generated, LearnBatch, LearnReport, ScoreRequest, Scored,
    SupervisedBatch, SupervisedReport,
};
use crate::experiment::{DecoderSettings, DeviceSetting, EngineSettings};
use crate::trajectory::TrajectoryId;
use cache::KeptCaches;
use decoder::Decoder;
use state::TrainingState;
use weights::Shape;

/// CUDA devices that this build and machine have.
#[must_use]
pub fn cuda_devices() -> i64 {
    tch::Cuda::device_count()
}

/// Sets the number of threads of libtorch's operators, for the whole process.
pub fn set_threads(threads: u32) {
    tch::set_num_threads(i32::try_from(threads.max(1)).unwrap_or(i32::MAX));
}

/// The engine in libtorch. Owns the weights, the caches of unfinished trajectories and the
/// optimizers; lives on one thread.
pub struct TorchEngine {
    decoder: Decoder,
    vocabulary: Arc<dyn Vocabulary + Send + Sync>,
    training: TrainingState,
    caches: KeptCaches,
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
        checkpoint::check_shape(shape)
            .map_err(|rule| EngineError::BadRequest(format!("the decoder's shape: {rule}")))?;
        check_vocabulary(shape, &*tokenizer).map_err(EngineError::BadRequest)?;
        let device = prepare(settings)?;
        let shape = Shape {
            settings: shape.clone(),
            norm_eps: checkpoint::NORM_EPS,
            end_of_text: Vec::new(),
        };
        guarded(|| {
            Ok(Self {
                decoder: Decoder::new(shape, seed, device),
                vocabulary: tokenizer,
                training: TrainingState::default(),
                caches: KeptCaches::default(),
            })
        })
    }

    /// The weights of a Hugging Face folder: config.json of a `Qwen2ForCausalLM` with a tied head,
    /// and model.safetensors in f32, bf16 or f16.
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
            let (decoder, _) = read_fitting(folder, &*tokenizer, device)?;
            Ok(Self {
                decoder,
                vocabulary: tokenizer,
                training: TrainingState::default(),
                caches: KeptCaches::default(),
            })
        })
    }

    /// The decoder's shape.
    #[must_use]
    pub fn shape(&self) -> &DecoderSettings {
        &self.decoder.shape.settings
    }

    /// Number of weights.
    #[must_use]
    pub fn parameter_count(&self) -> u64 {
        let parameters = self.decoder.parameters();
        parameters.iter().map(|p| p.tensor.numel() as u64).sum()
    }
}

impl Engine for TorchEngine {
    fn generate(&mut self, requests: &[GenerateRequest]) -> Result<Vec<Generated>, EngineError> {
        guarded(|| generate::generate(&self.decoder, &mut self.caches, &*self.vocabulary, requests))
    }

    fn release(&mut self, trajectories: &[TrajectoryId]) {
        for &id in trajectories {
            self.caches.release(id);
        }
    }

    fn score(&mut self, requests: &[ScoreRequest]) -> Result<Vec<Scored>, EngineError> {
        let reference = self.training.reference.as_ref();
        guarded(|| score::score_under(&self.decoder, reference, requests))
    }

    fn learn(&mut self, batch: &LearnBatch) -> Result<LearnReport, EngineError> {
        self.caches.clear();
        let (learner, reference) = (&mut self.training.learner, &self.training.reference);
        guarded(|| learn::learn(&self.decoder, learner, reference.as_ref(), batch))
    }

    fn supervise(&mut self, batch: &SupervisedBatch) -> Result<SupervisedReport, EngineError> {
        self.caches.clear();
        guarded(|| supervise::supervise(&self.decoder, &mut self.training.cold_start, batch))
    }

    fn freeze_reference(&mut self) {
        self.training.reference = Some(self.decoder.copy());
    }

    fn begin_rl(&mut self) {
        self.training.cold_start = supervise::ColdStart::default();
        self.training.learner = optimizer::AdamW::default();
    }

    fn save(&mut self, folder: &Path, with_optimizer: bool) -> Result<(), EngineError> {
        guarded(|| {
            let weights = checkpoint::write_decoder(&self.decoder, folder)?;
            if with_optimizer {
                self.training.save(folder, weights)?;
            }
            self.vocabulary.save(folder)
        })
    }

    fn load(&mut self, folder: &Path, with_optimizer: bool) -> Result<(), EngineError> {
        guarded(|| {
            let (decoder, weights) = read_fitting(folder, &*self.vocabulary, self.decoder.device)?;
            self.training = if with_optimizer {
                TrainingState::load(folder, &decoder, weights)?
            } else {
                TrainingState::default()
            };
            self.decoder = decoder;
            self.caches.clear();
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

fn check_vocabulary(shape: &DecoderSettings, vocabulary: &dyn Vocabulary) -> Result<(), String> {
    if vocabulary.size() as i64 <= shape.vocab_size {
        return Ok(());
    }
    Err(format!(
        "vocab_size is {}, but the tokenizer has {} ids, and each needs a row of the embedding",
        shape.vocab_size,
        vocabulary.size()
    ))
}

fn read_fitting(
    folder: &Path,
    vocabulary: &dyn Vocabulary,
    device: Device,
) -> Result<(Decoder, u64), EngineError> {
    let (decoder, weights) = checkpoint::read_decoder(folder, device)?;
    check_vocabulary(&decoder.shape.settings, vocabulary).map_err(|problem| {
        let path = folder.join(checkpoint::CONFIG);
        tensor_file::bad_file(
            &path,
            problem,
            "use the tokenizer that lies beside the weights",
        )
    })?;
    Ok((decoder, weights))
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
        Err(EngineError::Backend(text.to_owned()))
    })
}
