//! One turn: the server's ids as sampled, up to and including the one that completes a stop string.
//!
//! A server that keeps stop strings is asked once. Any other is asked piece by piece, without stop
//! strings, and the turn is cut here at the id that completes one; what was sampled beyond it is
//! dropped. Ids are never made from text while training.

use super::RemoteError;
use super::Stops;
use super::reply::{Answer, Ask, End, check};
use super::server::Server;
use crate::engine::{Finish, GenerateRequest, Generated, StopMatcher};
use crate::random::sampling_uniform;
use crate::trajectory::TokenId;

/// Ids of a piece, where turns are cut here: few are sampled in vain, and a prefix cache makes the
/// next request cheap.
const PIECE: u32 = 32;
/// Seeds are below this: servers take signed numbers.
const SEEDS: f64 = 2_147_483_648.0;

/// A turn under way.
struct Draft<'a> {
    request: &'a GenerateRequest,
    matcher: StopMatcher,
    ids: Vec<TokenId>,
    logprobs: Vec<f32>,
}

impl Server {
    /// Writes one turn.
    ///
    /// # Errors
    /// [`RemoteError`]; also for a context that leaves no room.
    pub async fn turn(&self, request: &GenerateRequest) -> Result<Generated, RemoteError> {
        let what = format!("turn {} of trajectory {}", request.turn, request.id);
        let limit = self.room(request, &what)?;
        let whole = self.can.stops == Stops::Kept || request.stop.is_empty();
        let mut draft = Draft {
            request,
            matcher: StopMatcher::new(&request.stop),
            ids: Vec::new(),
            logprobs: Vec::new(),
        };
        let mut finish = None;
        let mut context = request.context.clone();
        while finish.is_none() && (draft.ids.len() as u32) < limit {
            let left = limit - draft.ids.len() as u32;
            let ask = Ask {
                what: &what,
                context: &context,
                max_new_tokens: if whole { left } else { left.min(PIECE) },
                temperature: request.sampling.temperature,
                seed: draft.seed(),
                stop: if whole { &request.stop } else { &[] },
            };
            let answer = self.line.generate(&ask).await?;
            check(&ask, &answer, self.tokenizer.vocab_size())?;
            let before = draft.ids.len();
            finish = self.take(&mut draft, &ask, answer)?;
            context.extend(draft.ids.iter().skip(before));
        }
        Ok(Generated {
            id: request.id,
            turn: request.turn,
            ids: draft.ids,
            logprobs: draft.logprobs,
            finish: finish.unwrap_or(Finish::Length),
        })
    }

    /// Most ids that the turn may have.
    fn room(&self, request: &GenerateRequest, what: &str) -> Result<u32, RemoteError> {
        let Some(most) = self.can.context else {
            return Ok(request.max_new_tokens);
        };
        match most.checked_sub(request.context.len() as u32) {
            Some(room) if room > 0 => Ok(room.min(request.max_new_tokens)),
            _ => Err(RemoteError::BadReply {
                what: what.to_owned(),
                field: "the context".into(),
                problem: format!(
                    "has {} ids, which leaves no room to write: the server takes {most}",
                    request.context.len()
                ),
            }),
        }
    }

    /// Adds an answer to the turn; says how the turn ended, if it did.
    fn take(
        &self,
        draft: &mut Draft<'_>,
        ask: &Ask<'_>,
        answer: Answer,
    ) -> Result<Option<Finish>, RemoteError> {
        let bad = |field: &str, problem: String| RemoteError::BadReply {
            what: ask.what.to_owned(),
            field: field.to_owned(),
            problem,
        };
        let ids = match answer.ids {
            Some(ids) => ids,
            None if self.strict => {
                return Err(bad(
                    "the list of ids",
                    "is missing in a training run".into(),
                ));
            }
            None => self.ids_of_text(&answer.text, &answer.end, draft.request),
        };
        let logprobs = match answer.logprobs {
            Some(logprobs) if logprobs.len() == ids.len() => logprobs,
            _ if self.strict => {
                return Err(bad(
                    "the list of log-probs",
                    "is missing in a training run".into(),
                ));
            }
            // Nobody learns from a measured turn; what is unknown is no number.
            _ => vec![f32::NAN; ids.len()],
        };
        for (id, logprob) in ids.into_iter().zip(logprobs) {
            draft.ids.push(id);
            draft.logprobs.push(logprob);
            if draft.matcher.push(self.tokenizer.token_bytes(id)) {
                return Ok(Some(Finish::Stop));
            }
        }
        match answer.end {
            End::Text => Ok(Some(Finish::Stop)),
            // With the whole turn asked for, its length is the limit; a piece has a next one.
            End::Length => Ok(None),
            End::Stop(stop) if self.strict => Err(bad(
                "the list of ids",
                format!(
                    "does not end with the id that completes the stop string {stop:?}, on which the server says it ended: ids that were sampled are missing"
                ),
            )),
            End::Stop(_) => Ok(Some(Finish::Stop)),
        }
    }

    /// Ids of a text, in runs that only measure. A stop string that the server cut off is put back.
    fn ids_of_text(&self, text: &str, end: &End, request: &GenerateRequest) -> Vec<TokenId> {
        let mut whole = text.to_owned();
        if let End::Stop(stop) = end
            && request.stop.contains(stop)
            && !text.ends_with(stop.as_str())
        {
            whole.push_str(stop);
        }
        let mut ids = self.tokenizer.encode(&whole);
        ids.truncate(request.max_new_tokens as usize);
        ids
    }
}

impl Draft<'_> {
    /// A seed for the next id on: the number at its address (seed, trajectory, turn, token).
    fn seed(&self) -> u32 {
        let request = self.request;
        let token = self.ids.len() as u32;
        let uniform = sampling_uniform(request.sampling.seed, request.id, request.turn, token);
        (uniform * SEEDS) as u32
    }
}
