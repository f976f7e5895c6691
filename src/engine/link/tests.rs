use std::sync::Arc;

use super::super::scripted::ScriptedEngine;
use super::super::{GenerateRequest, Sampling};
use super::*;

fn request(member: u32) -> GenerateRequest {
    GenerateRequest {
        id: TrajectoryId {
            member,
            ..TrajectoryId::default()
        },
        turn: 0,
        context: vec![member],
        max_new_tokens: 9,
        sampling: Sampling::plain(1.0, 0),
        stop: Arc::from(vec![]),
        ignore_eos: false,
    }
}

fn take_all(link: &mut EngineLink) -> EngineInbox {
    let (mut inbox, mut seconds) = (EngineInbox::default(), EngineSeconds::default());
    while link.outstanding() > 0 {
        let reply = link.replies.recv().unwrap();
        take(link, &mut inbox, &mut seconds, reply).unwrap();
    }
    inbox
}

fn start() -> EngineLink {
    let script = |request: &GenerateRequest| vec![request.context[0] + 1];
    EngineLink::start(move || Ok(ScriptedEngine::new(Arc::new(script)))).unwrap()
}

#[test]
fn every_turn_is_one_reply_and_so_is_every_other_request() {
    let mut link = start();
    link.send(EngineRequest::Generate(vec![request(0), request(1)]))
        .unwrap();
    link.send(EngineRequest::Generate(vec![request(2)]))
        .unwrap();
    link.send(EngineRequest::Release(vec![])).unwrap();
    assert_eq!(link.outstanding(), 4);
    let mut turns = take_all(&mut link).generated;
    turns.sort_by_key(|turn| turn.id);
    let said: Vec<u32> = turns.iter().map(|turn| turn.ids[0]).collect();
    assert_eq!(said, [1, 2, 3]);
}

#[test]
fn turns_that_are_released_are_not_waited_for() {
    let mut link = start();
    let everyone: Vec<TrajectoryId> = (0..50).map(|n| request(n).id).collect();
    link.send(EngineRequest::Generate((0..50).map(request).collect()))
        .unwrap();
    link.send(EngineRequest::Release(everyone)).unwrap();
    let turns = take_all(&mut link).generated.len();
    assert!(
        turns == 0 || turns == 50,
        "{turns} turns of a released batch"
    );
    assert_eq!(link.outstanding(), 0);
}
