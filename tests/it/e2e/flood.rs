//! An agent that never stops printing.

use std::fs;

use super::rig::Fleet;

#[test]
fn a_flood_is_cut_off_and_the_answer_is_not() {
    let mut fleet = Fleet::plain();
    fleet.start();
    // Events of a megabyte: more than a log takes, and not many.
    let flood = r#"
        for number in $(seq 80); do
            printf '{"type":"thinking","text":"'
            head -c 1000000 /dev/zero | tr '\0' y
            echo '"}'
        done
        say enough
    "#;
    let run = fleet.over(&fleet.dispatch(flood));
    assert_eq!(run["status"], "completed");
    let id = run["id"].as_str().unwrap();
    let segments = fleet.json(&["transcript", id]);
    let segments = segments["segments"].as_array().unwrap();
    let last = segments.last().unwrap();
    assert_eq!(last["text"], "enough");
    let log = fs::read_to_string(fleet.path(&format!("data/runs/{id}.ndjson"))).unwrap();
    assert!((64 << 20..66 << 20).contains(&log.len()), "{}", log.len());
    assert_eq!(log.matches("\"message\":\"dropped ").count(), 1);
}
