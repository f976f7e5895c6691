//! A turn under way: its ids, and how many of them the cache holds.

use crate::engine::{Finish, GenerateRequest, Generated, StopMatcher};
use crate::trajectory::TokenId;

use super::vocabulary::Vocabulary;

/// What the cache holds of a context.
#[derive(Default)]
pub(super) struct Cached {
    /// Its blocks, in order.
    pub table: Vec<u32>,
    /// How many of its ids are computed.
    pub computed: usize,
    /// How many of its blocks were published.
    pub published: usize,
}

/// A turn under way. A step runs ids that are not computed; when all are, the next is sampled. Nothing
/// tells a new context from one whose cache was taken away.
pub(super) struct Sequence {
    pub request: GenerateRequest,
    /// The context, then what was sampled.
    pub ids: Vec<TokenId>,
    pub cached: Cached,
    logprobs: Vec<f32>,
    /// Most ids it may sample.
    limit: usize,
    matcher: StopMatcher,
}

impl Sequence {
    /// A turn of which nothing is written; `room` is the longest context.
    pub fn new(request: GenerateRequest, room: usize) -> Self {
        Self {
            ids: request.context.clone(),
            cached: Cached::default(),
            logprobs: Vec::new(),
            limit: most_new(&request, room),
            matcher: StopMatcher::new(&request.stop),
            request,
        }
    }

    /// Whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.limit == 0
    }

    /// Ids that have to run before the next can be sampled.
    pub fn pending(&self) -> usize {
        self.ids.len() - self.cached.computed
    }

    /// Number of the next id of this turn.
    pub fn next_token(&self) -> u32 {
        self.logprobs.len() as u32
    }

    /// Takes a sampled id; says why the turn is over, if it is.
    pub fn push(
        &mut self,
        id: TokenId,
        logprob: f32,
        ends: bool,
        vocabulary: &dyn Vocabulary,
    ) -> Option<Finish> {
        self.ids.push(id);
        self.logprobs.push(logprob);
        if self.matcher.push(vocabulary.bytes(id)) || ends {
            Some(Finish::Stop)
        } else if self.logprobs.len() >= self.limit {
            Some(Finish::Length)
        } else {
            None
        }
    }

    /// The turn that was written.
    pub fn generated(&self, finish: Finish) -> Generated {
        Generated {
            id: self.request.id,
            turn: self.request.turn,
            ids: self.ids[self.request.context.len()..].to_vec(),
            logprobs: self.logprobs.clone(),
            finish,
        }
    }
}

/// Most ids that a request may sample where contexts end at `room`.
pub(super) fn most_new(request: &GenerateRequest, room: usize) -> usize {
    (request.max_new_tokens as usize).min(room.saturating_sub(request.context.len()))
}
