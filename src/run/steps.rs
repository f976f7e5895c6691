//! Writes down finished steps: of the cold start, of RL, and evaluations, each with its metrics.

use bevy_ecs::prelude::*;

use super::publish::News;
use super::recorder::{Recorder, RunClock, keeps};
use super::step_metrics::StepSums;
use crate::credit::plugin::KlPaid;
use crate::engine::{EngineSeconds, LearnReport};
use crate::eval::Evaluated;
use crate::experiment::TaskKind;
use crate::learner::{ColdStartProgress, PackedRow, Updated};
use crate::record::{Event, MemoryCredit, Metrics, TokenBlock};
use crate::rollout::{Roster, RunSettings};
use crate::trajectory::{
    Advantages, AnswerScores, KlToReference, MemoryRewards, Outcome, Question, TurnState, Turns,
};

/// What is read of a trajectory with credit.
type Credited<'w> = (
    &'w Turns,
    &'w TurnState,
    &'w Outcome,
    Option<&'w MemoryRewards>,
    Option<&'w AnswerScores>,
    Option<&'w KlToReference>,
    &'w Advantages,
    &'w Question,
);

/// A row as it stands in `tokens.bin`.
fn token_block(packed: &PackedRow, learner: &[f32], entropy: &[f32]) -> TokenBlock {
    let (row, credit) = (&packed.row, &packed.credit);
    let kl = if credit.kl.is_empty() {
        vec![0.0; row.ids.len()]
    } else {
        credit.kl.clone()
    };
    TokenBlock {
        id: packed.id,
        row: packed.number,
        ids: row.ids.clone(),
        turn: row.turn.clone(),
        mask: row.mask.clone(),
        sampled: row.logprobs.clone(),
        outcome: credit.outcome.clone(),
        memory: credit.memory.clone(),
        weight: credit.weight.clone(),
        learner: learner.to_vec(),
        kl,
        entropy: entropy.to_vec(),
    }
}

/// (sampled, learner) log-probs of the trained tokens of the first mini-batch, which is computed with the
/// weights that sampled it.
fn first_logprobs(updated: &Updated, report: &LearnReport) -> impl Iterator<Item = (f32, f32)> {
    let rows = updated.mini_batches.first().into_iter().flatten();
    rows.filter_map(|&row| Some((&updated.rows.get(row)?.row, report.logprobs.get(row)?)))
        .flat_map(|(row, learner)| {
            let pairs = row.logprobs.iter().copied().zip(learner.iter().copied());
            row.mask.iter().zip(pairs).filter(|(on, _)| **on)
        })
        .map(|(_, pair)| pair)
}

/// The memory rewards of a trajectory with the advantages that they gave.
fn memory_credit(rewards: Option<&MemoryRewards>, advantages: &Advantages) -> Vec<MemoryCredit> {
    let parts = &advantages.memory;
    rewards
        .iter()
        .flat_map(|rewards| &rewards.0)
        .map(|reward| MemoryCredit {
            turn: reward.turn,
            p_memory: reward.p_memory,
            p_full: reward.p_full,
            p_previous: reward.p_previous,
            p_empty: reward.p_empty,
            reward: reward.reward,
            advantage: parts
                .iter()
                .find(|(turn, _)| *turn == reward.turn)
                .map_or(0.0, |(_, part)| *part),
        })
        .collect()
}

/// Writes `cold_start_step` and its metrics.
pub fn record_cold_start(
    mut recorder: ResMut<Recorder>,
    mut progress: ResMut<ColdStartProgress>,
    mut clock: ResMut<RunClock>,
    mut news: ResMut<News>,
    seconds: Res<EngineSeconds>,
) -> Result {
    let Some((step, lr, report)) = progress.finished.take() else {
        return Ok(());
    };
    let losses: Vec<String> = report
        .parts
        .iter()
        .map(|(part, loss, accuracy)| format!("{part} {loss:.2} ({:.0} %)", accuracy * 100.0))
        .collect();
    news.step = format!("loss {}", losses.join(", "));
    recorder.writer.append(&Event::ColdStartStep {
        step: step + 1,
        parts: report.parts.clone(),
        aid_loss: report.aid_loss,
        lr: f64::from(lr),
    })?;
    let mut metrics = Metrics::default();
    metrics.set_cold_start(&report, f64::from(lr));
    metrics.set(
        "cold_start/timing_s/step",
        seconds.learn - clock.taken.learn,
    );
    clock.taken = *seconds;
    recorder.writer.append_metrics(step + 1, &metrics)?;
    Ok(())
}

/// Writes `credit_assigned`, `learned` and the metrics of the step.
pub fn record_update(
    mut recorder: ResMut<Recorder>,
    mut clock: ResMut<RunClock>,
    mut updated: ResMut<Updated>,
    settings: Res<RunSettings>,
    roster: Res<Roster>,
    seconds: Res<EngineSeconds>,
    mut news: ResMut<News>,
    paid: Res<KlPaid>,
    trajectories: Query<Credited<'static>>,
) -> Result {
    let Some(report) = updated.report.take() else {
        return Ok(());
    };
    let told = report.logprobs.iter().zip(&report.entropies);
    let mut rows = updated.rows.iter().zip(told).peekable();
    let mut sums = StepSums::default();
    for (&id, &entity) in &roster.entities {
        let (turns, state, outcome, memory, scores, kl, advantages, question) = trajectories
            .get(entity)
            .with_context(|| format!("trajectory {id}"))?;
        let mut tokens = Vec::new();
        while let Some((packed, (learner, entropy))) = rows.next_if(|(packed, _)| packed.id == id) {
            sums.weights.extend(
                packed
                    .row
                    .mask
                    .iter()
                    .zip(&packed.credit.weight)
                    .filter(|(on, _)| **on)
                    .map(|(_, weight)| f64::from(*weight)),
            );
            if keeps(&settings, id) {
                let block = token_block(packed, learner, entropy);
                tokens.push(recorder.writer.append_tokens(&block)?);
            }
        }
        let memory = memory_credit(memory, advantages);
        let price = paid.0.map_or(0.0, |paid| paid.weight);
        let costs = kl.iter().flat_map(|kl| kl.0.iter().flatten());
        let cost = price * costs.map(|&kl| f64::from(kl)).sum::<f64>();
        sums.add(id, turns, *state, outcome, &memory, question, cost);
        if keeps(&settings, id) {
            recorder.writer.append(&Event::CreditAssigned {
                id,
                outcome: advantages.outcome.mean(),
                kl: advantages.kl.mean(),
                memory,
                scores: scores.map(|scores| scores.0.clone()).unwrap_or_default(),
                tokens,
            })?;
        }
    }
    let step = updated.step + 1;
    recorder.writer.append(&Event::Learned {
        step,
        mini_batches: report.mini_batches.clone(),
    })?;
    let mut metrics = sums.metrics();
    metrics.set_update(&report.mini_batches);
    metrics.set("actor/lr", f64::from(updated.lr));
    if updated.kl_weight > 0.0 {
        metrics.set("actor/kl_coef", f64::from(updated.kl_weight));
    }
    if let Some(paid) = paid.0 {
        metrics.set("actor/reward_kl_penalty", paid.kl);
        metrics.set("actor/reward_kl_penalty_coeff", paid.weight);
    }
    // A later epoch overwrites what the learner said before its first step.
    if settings.0.learner.epochs == 1 {
        metrics.set_probs_diff(first_logprobs(&updated, &report));
    }
    if let Some(mismatch) = &report.mismatch {
        metrics.set_mismatch(mismatch);
    }
    metrics.set("training/global_step", f64::from(step));
    metrics.set("timing_s/gen", seconds.generate - clock.taken.generate);
    metrics.set("timing_s/adv", seconds.score - clock.taken.score);
    metrics.set("timing_s/update_actor", seconds.learn - clock.taken.learn);
    clock.taken = *seconds;
    if let Some(started) = clock.step_started.take() {
        let spent = started.elapsed().as_secs_f64();
        metrics.set("timing_s/step", spent);
        metrics.set("perf/time_per_step", spent);
        metrics.set("perf/throughput", sums.tokens / spent.max(1e-9));
    }
    metrics.set("timing_s/save_checkpoint", recorder.seconds_saving);
    let number = |name: &str| metrics.get(name).unwrap_or(0.0);
    news.step = format!(
        "EM {:.2}, notes recall {:.2}, notes {:.0} tokens",
        number("outcome/em"),
        number("memory/notes_recall"),
        number("memory/notes_tokens"),
    );
    if let Some(reward) = metrics.get("memory/reward/mean") {
        news.step += &format!(", memory reward {reward:.2}");
    }
    recorder.writer.append_metrics(step, &metrics)?;
    updated.clear_rows();
    Ok(())
}

/// Writes `evaluated` and its metrics.
pub fn record_evaluation(
    mut recorder: ResMut<Recorder>,
    mut evaluated: ResMut<Evaluated>,
    mut news: ResMut<News>,
    settings: Res<RunSettings>,
    clock: Res<RunClock>,
) -> Result {
    let lines = std::mem::take(&mut evaluated.0);
    let Some(step) = lines.first().map(|line| line.step) else {
        return Ok(());
    };
    let task = match settings.0.task.kind {
        TaskKind::Lookup => "lookup",
        TaskKind::Search => "search",
    };
    recorder.completed |= settings.0.evaluation.only;
    let mut metrics = Metrics::default();
    news.evaluation.clone_from(&lines);
    for line in lines {
        let at = format!("{}/{}", line.context.name(), line.objectives);
        metrics.set(format!("val-core/{task}/em/{at}"), line.em);
        let figures = line.figures().into_iter().filter(|(name, _)| *name != "em");
        let figures = figures.filter_map(|(name, value)| Some((name.to_owned(), value?)));
        for (name, value) in figures.chain(line.endings()) {
            metrics.set(format!("val-aux/{task}/{name}/{at}"), value);
        }
        recorder.writer.append(&Event::Evaluated(Box::new(line)))?;
    }
    metrics.set(
        "timing_s/testing",
        clock.seconds.get("evaluation").copied().unwrap_or(0.0),
    );
    recorder.writer.append_metrics(step, &metrics)?;
    Ok(())
}
