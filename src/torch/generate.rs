//! Writing turns: rows of different lengths side by side, with what earlier turns have computed.

use std::collections::BTreeMap;
use std::ops::Range;

use tch::{Kind, Tensor};

use crate::engine::{EngineError, Finish, GenerateRequest, Generated, StopMatcher};
use crate::random;
use crate::trajectory::TokenId;

use super::batch::{check_ids, check_temperature, padded};
use super::cache::{KeptCaches, WorkingCache};
use super::decoder::{Decoder, attention};
use super::sample::sample;
use super::vocabulary::Vocabulary;

/// Most rows side by side.
const ROWS: usize = 256;
/// Most new tokens, padding included, that one pass reads.
const PREFILL_TOKENS: usize = 16_384;
/// Finished rows are dropped from the batch when fewer than this share is unfinished.
const COMPACT_BELOW: f64 = 0.7;

/// See [`crate::engine::Engine::generate`].
pub(super) fn generate(
    decoder: &Decoder,
    caches: &mut KeptCaches,
    vocabulary: &dyn Vocabulary,
    requests: &[GenerateRequest],
) -> Result<Vec<Generated>, EngineError> {
    for request in requests {
        check(decoder, request)?;
    }
    let _guard = tch::no_grad_guard();
    let mut replies = Vec::with_capacity(requests.len());
    for requests in requests.chunks(ROWS) {
        replies.extend(write_turns(decoder, caches, vocabulary, requests));
    }
    Ok(replies)
}

/// One row of the batch.
struct Line<'a> {
    request: &'a GenerateRequest,
    /// Place of the reply.
    number: usize,
    ids: Vec<TokenId>,
    logprobs: Vec<f32>,
    matcher: StopMatcher<'a>,
    /// Most ids it may sample.
    limit: usize,
    finish: Option<Finish>,
}

impl Line<'_> {
    /// Positions in the cache: the context and every sampled id but the last, which has not been
    /// run.
    fn cached(&self) -> usize {
        self.request.context.len() + self.ids.len().saturating_sub(1)
    }

    fn push(&mut self, id: TokenId, logprob: f32, vocabulary: &dyn Vocabulary, ends: bool) {
        self.ids.push(id);
        self.logprobs.push(logprob);
        if self.matcher.push(vocabulary.bytes(id)) || ends {
            self.finish = Some(Finish::Stop);
        } else if self.ids.len() >= self.limit {
            self.finish = Some(Finish::Length);
        }
    }
}

fn write_turns(
    decoder: &Decoder,
    caches: &mut KeptCaches,
    vocabulary: &dyn Vocabulary,
    requests: &[GenerateRequest],
) -> Vec<Generated> {
    let most = decoder.shape.settings.max_position_embeddings as usize;
    let mut lines: Vec<Line<'_>> = Vec::new();
    let mut replies: Vec<Generated> = Vec::new();
    for (number, request) in requests.iter().enumerate() {
        let limit = (request.max_new_tokens as usize).min(most - request.context.len());
        replies.push(Generated {
            id: request.id,
            turn: request.turn,
            ids: Vec::new(),
            logprobs: Vec::new(),
            finish: Finish::Length,
        });
        if limit > 0 {
            lines.push(Line {
                request,
                number,
                ids: Vec::new(),
                logprobs: Vec::new(),
                matcher: StopMatcher::new(&request.stop),
                limit,
                finish: None,
            });
        }
    }
    if lines.is_empty() {
        return replies;
    }

    let (mut working, mut logits) = prefill(decoder, caches, &lines);
    loop {
        choose(decoder, vocabulary, &logits, &mut lines);
        for (row, line) in (0i64..).zip(&mut lines) {
            // A row that finished earlier and still stands in the batch has no ids any more.
            let Some(finish) = line.finish.filter(|_| !line.ids.is_empty()) else {
                continue;
            };
            let reply = &mut replies[line.number];
            reply.finish = finish;
            reply.ids = std::mem::take(&mut line.ids);
            reply.logprobs = std::mem::take(&mut line.logprobs);
            let mut run = line.request.context.clone();
            run.extend(&reply.ids[..reply.ids.len() - 1]);
            caches.keep(line.request.id, run, &working, row);
        }
        let alive: Vec<i64> = (0i64..)
            .zip(&lines)
            .filter(|(_, line)| line.finish.is_none())
            .map(|(row, _)| row)
            .collect();
        if alive.is_empty() {
            return replies;
        }
        if (alive.len() as f64) < COMPACT_BELOW * lines.len() as f64 {
            working = working.select(&alive);
            lines.retain(|line| line.finish.is_none());
        }
        logits = step(decoder, &mut working, &lines);
    }
}

/// Samples the next id of every unfinished row.
fn choose(decoder: &Decoder, vocabulary: &dyn Vocabulary, logits: &Tensor, lines: &mut [Line<'_>]) {
    let temperatures: Vec<f32> = lines
        .iter()
        .map(|line| line.request.sampling.temperature)
        .collect();
    let uniforms: Vec<f64> = lines
        .iter()
        .map(|line| {
            let (request, token) = (line.request, line.ids.len() as u32);
            random::sampling_uniform(request.sampling.seed, request.id, request.turn, token)
        })
        .collect();
    let chosen = sample(logits, &temperatures, &uniforms);
    for (line, (id, logprob)) in lines.iter_mut().zip(chosen) {
        if line.finish.is_none() {
            let ends = !line.request.ignore_eos && decoder.shape.end_of_text.contains(&id);
            line.push(id as TokenId, logprob, vocabulary, ends);
        }
    }
}

/// Runs the last sampled id of every row; gives the next logits [rows, vocab]. Finished rows run
/// along without being read.
fn step(decoder: &Decoder, working: &mut WorkingCache, lines: &[Line<'_>]) -> Tensor {
    let device = decoder.device;
    let rows = lines.len() as i64;
    let last: Vec<i64> = lines
        .iter()
        .map(|line| line.ids.last().copied().map_or(0, i64::from))
        .collect();
    let at: Vec<i64> = lines.iter().map(|line| line.cached() as i64).collect();
    let (longest, shortest) = (
        at.iter().copied().max().unwrap_or(0) + 1,
        at.iter().copied().min().unwrap_or(0) + 1,
    );
    working.reserve(longest);
    let ids = Tensor::from_slice(&last).unsqueeze(1).to_device(device);
    let positions = Tensor::from_slice(&at).unsqueeze(1).to_device(device);
    let numbers = Tensor::arange(rows, (Kind::Int64, device)).unsqueeze(1);
    let mask = (shortest < longest).then(|| visible(&positions, longest));
    let hidden = decoder.forward(&ids, Some(&positions), |layer, q, k, v| {
        working.write(layer, &numbers, &positions, k, v);
        let (keys, values) = working.read(layer, 0, rows, longest);
        attention(q, &keys, &values, mask.as_ref())
    });
    decoder.logits(&hidden.last.squeeze_dim(1))
}

/// Runs every context beyond what is kept of it; gives the cache of all lines, in order, and the
/// logits after their contexts [lines, vocab]. Equal contexts of which nothing is kept (a group's
/// first turn) are run once.
fn prefill(decoder: &Decoder, caches: &KeptCaches, lines: &[Line<'_>]) -> (WorkingCache, Tensor) {
    struct Job<'a> {
        line: usize,
        context: &'a [TokenId],
        kept: usize,
    }
    let mut jobs: Vec<Job<'_>> = Vec::new();
    let mut job_of: Vec<usize> = Vec::new();
    let mut known = BTreeMap::<&[TokenId], usize>::new();
    for (line, Line { request, .. }) in lines.iter().enumerate() {
        let context = &request.context[..];
        let kept = caches.reusable(request.id, context);
        let twin = known.get(context).copied().filter(|_| kept == 0);
        job_of.push(twin.unwrap_or(jobs.len()));
        if twin.is_none() {
            if kept == 0 {
                known.insert(context, jobs.len());
            }
            jobs.push(Job {
                line,
                context,
                kept,
            });
        }
    }
    // Like lengths side by side, so that little is padded.
    let mut order: Vec<usize> = (0..jobs.len()).collect();
    order.sort_by_key(|&job| jobs[job].context.len() - jobs[job].kept);
    let mut row_of_job = vec![0i64; jobs.len()];
    for (row, &job) in (0i64..).zip(&order) {
        row_of_job[job] = row;
    }
    let jobs: Vec<&Job<'_>> = order.iter().map(|&job| &jobs[job]).collect();

    let longest = jobs.iter().map(|job| job.context.len()).max().unwrap_or(0);
    let working = WorkingCache::new(decoder, jobs.len(), longest as i64);
    for (row, job) in (0i64..).zip(&jobs) {
        caches.fill(lines[job.line].request.id, &working, row, job.kept);
    }
    let mut logits = Vec::new();
    let mut first = 0;
    while first < jobs.len() {
        let fits = |end: &usize| {
            let new = jobs[*end].context.len() - jobs[*end].kept;
            *end == first || (end - first + 1) * new <= PREFILL_TOKENS
        };
        let end = (first..jobs.len()).take_while(fits).count() + first;
        let news: Vec<(&[TokenId], usize)> = jobs[first..end]
            .iter()
            .map(|job| (&job.context[job.kept..], job.kept))
            .collect();
        logits.push(read(decoder, &working, first..end, &news));
        first = end;
    }
    let logits = Tensor::cat(&logits, 0);
    let rows: Vec<i64> = job_of.iter().map(|&job| row_of_job[job]).collect();
    if rows.iter().copied().eq(0..jobs.len() as i64) {
        return (working, logits);
    }
    let index = Tensor::from_slice(&rows).to_device(decoder.device);
    (working.select(&rows), logits.index_select(0, &index))
}

/// Runs new ids of the rows `rows`: for each its ids and the position of the first. Gives the
/// logits after the last id, [rows, vocab].
fn read(
    decoder: &Decoder,
    working: &WorkingCache,
    rows: Range<usize>,
    news: &[(&[TokenId], usize)],
) -> Tensor {
    let device = decoder.device;
    let ids = padded(&news.iter().map(|new| new.0).collect::<Vec<_>>(), device);
    let (count, width) = (ids.size()[0], ids.size()[1]);
    // Padding is written to a position beyond every context, where it is covered or never seen.
    let spare = working
        .capacity()
        .min(decoder.shape.settings.max_position_embeddings)
        - 1;
    let mut at = Vec::with_capacity((count * width) as usize);
    let (mut last, mut end) = (Vec::new(), 0);
    for (row, (new, start)) in (0i64..).zip(news) {
        let (start, length) = (*start as i64, new.len() as i64);
        at.extend((0..width).map(|i| if i < length { start + i } else { spare }));
        last.push(row * width + length - 1);
        end = end.max(start + length);
    }
    let positions = Tensor::from_slice(&at)
        .view([count, width])
        .to_device(device);
    let first = rows.start as i64;
    let numbers = Tensor::arange_start(first, first + count, (Kind::Int64, device)).unsqueeze(1);
    let nothing_kept = news.iter().all(|new| new.1 == 0);
    let mask = (!nothing_kept).then(|| visible(&positions, end));
    let hidden = decoder.forward(&ids, Some(&positions), |layer, q, k, v| {
        working.write(layer, &numbers, &positions, k, v);
        if nothing_kept {
            return attention(q, k, v, None);
        }
        let (keys, values) = working.read(layer, first, count, end);
        attention(q, &keys, &values, mask.as_ref())
    });
    decoder.logits(&super::batch::picked(&hidden.last, &last))
}

/// [rows, 1, n, keys]: 0 where a query at `positions` [rows, n] sees a key, -inf elsewhere.
fn visible(positions: &Tensor, keys: i64) -> Tensor {
    let keys = Tensor::arange(keys, (Kind::Int64, positions.device()));
    let hidden = positions.unsqueeze(1).unsqueeze(3).lt_tensor(&keys);
    let mask = Tensor::zeros(hidden.size(), (Kind::Float, positions.device()));
    mask.masked_fill(&hidden, f64::NEG_INFINITY)
}

fn check(decoder: &Decoder, request: &GenerateRequest) -> Result<(), EngineError> {
    let what = format!("turn {} of trajectory {}", request.turn, request.id);
    check_ids(
        &decoder.shape,
        &format!("{what}: the context"),
        &request.context,
    )?;
    check_temperature(&what, request.sampling.temperature)?;
    let most = decoder.shape.settings.max_position_embeddings;
    if request.context.len() as i64 >= most {
        return Err(EngineError::BadRequest(format!(
            "{what}: the context has {} ids, which leaves no room to write: it must have fewer than \
             {most} (max_position_embeddings)",
            request.context.len()
        )));
    }
    Ok(())
}
