//! A look at turns that are being written. Whoever shows a run asks for one; the engine thread fills
//! it after its next step. Without anybody who asks it costs one load of a flag a step.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::Engine;
use crate::trajectory::{TokenId, TrajectoryId};

/// The ids that every unfinished turn has so far.
pub type UnderWay = BTreeMap<TrajectoryId, Vec<TokenId>>;

/// Shared by the engine thread and whoever looks.
#[derive(Clone, Debug, Default)]
pub struct Glance(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    wanted: AtomicBool,
    seen: Mutex<UnderWay>,
}

impl Glance {
    /// What was seen last; asks for another look.
    #[must_use]
    pub fn look(&self) -> UnderWay {
        self.0.wanted.store(true, Ordering::Relaxed);
        let seen = self.0.seen.lock();
        seen.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Fills it, if somebody asked.
    pub(super) fn offer(&self, engine: &impl Engine) {
        if self.0.wanted.swap(false, Ordering::Relaxed) {
            let seen = engine.under_way();
            *self.0.seen.lock().unwrap_or_else(PoisonError::into_inner) = seen;
        }
    }
}
