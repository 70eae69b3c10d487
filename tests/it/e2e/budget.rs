//! Money and pauses: who may work.

use std::fs;

use serde_json::{Value, json};

use super::rig::Fleet;

fn ada(spec: &Value) -> Value {
    let mut ada = json!({"title": "Ada", "adapter": "told"});
    for (key, value) in spec.as_object().unwrap() {
        ada[key] = value.clone();
    }
    ada
}

fn condition(object: &Value, kind: &str) -> Value {
    let conditions = object["conditions"].as_array().unwrap();
    let found = conditions.iter().find(|it| it["type"] == kind);
    found.cloned().unwrap_or(Value::Null)
}

/// The kinds of what was crossed, in alphabetical order.
fn incidents(fleet: &Fleet) -> Vec<String> {
    let budgets = fleet.json(&["budget"])["budgets"].clone();
    let kinds = budgets[0]["incidents"].as_array().unwrap();
    let kinds = kinds
        .iter()
        .map(|it| it["kind"].as_str().unwrap().to_owned());
    let mut kinds: Vec<_> = kinds.collect();
    kinds.sort();
    kinds
}

#[test]
fn a_budget_warns_once_pauses_once_and_lifts_by_a_commit() {
    let mut fleet = Fleet::plain();
    fleet.put(
        "Agent",
        "ada",
        &ada(&json!({"budget": {"monthly": "$1.00"}})),
    );
    fleet.commit("Give Ada a dollar a month");
    fleet.start();
    let spend = |micros: u32| {
        let run = fleet.dispatch(&format!("spend {micros}; say spent"));
        assert_eq!(fleet.over(&run)["usage"]["costMicros"], micros);
    };
    spend(500_000);
    assert_eq!(incidents(&fleet), Vec::<String>::new());
    spend(350_000);
    fleet.until("the warning", |fleet| {
        (incidents(fleet) == ["soft"]).then_some(())
    });
    spend(10_000);
    assert_eq!(incidents(&fleet), ["soft"]);
    spend(200_000);
    fleet.until("the end", |fleet| {
        (incidents(fleet) == ["hard", "soft"]).then_some(())
    });
    let paused = fleet.until("it is shown", |fleet| {
        let paused = condition(&fleet.get("agent", "ada"), "Paused");
        (paused["status"] == "True").then_some(paused)
    });
    assert_eq!(paused["reason"], "PausedByBudget");
    let why = fleet.held("agent/ada", "PausedByBudget");
    assert!(why.contains("$1.0"), "{why}");
    // Without a reservation it is a reaction after the run: what is asked for still runs.
    spend(10_000);
    assert_eq!(incidents(&fleet), ["hard", "soft"]);

    fleet.put(
        "Agent",
        "ada",
        &ada(&json!({"budget": {"monthly": "$5.00"}})),
    );
    fleet.commit("Raise it");
    fleet.until("the pause is lifted", |fleet| {
        let paused = condition(&fleet.get("agent", "ada"), "Paused");
        (paused["status"] == "False").then_some(())
    });
    let events = fleet.run(&["events"]).expect(0).stdout;
    assert_eq!(
        events.matches("BudgetThresholdCrossed").count(),
        2,
        "{events}"
    );
    assert_eq!(events.matches("BudgetPauseLifted").count(), 1, "{events}");
}

#[test]
fn an_agent_that_git_paused_works_on_no_path() {
    let mut fleet = Fleet::plain();
    fleet.put("Agent", "ada", &ada(&json!({"lifecycle": "paused"})));
    fleet.put(
        "Ticket",
        "thing",
        &json!({"title": "note Ticket", "assignee": "ada", "space": "room"}),
    );
    fleet.put(
        "Dispatch",
        "once",
        &json!({"agent": "ada", "space": "room", "prompt": "note Once"}),
    );
    fleet.commit("Pause Ada");
    fleet.start();
    let asked = fleet.dispatch("note Asked");
    let told = fleet.run(&["send", "room", "note Told"]).line();
    for held in ["ticket/thing", "dispatch/once", &asked, &told] {
        fleet.held(held, "PausedByGit");
    }
    // What an operator may take back is what an operator did.
    fleet.run(&["resume", "ada"]).expect(0);
    fleet.run(&["reconcile"]).expect(0);
    fleet.held(&asked, "PausedByGit");
    assert_eq!(fleet.runs().len(), 0);
    fleet.put("Agent", "ada", &ada(&json!({"lifecycle": "active"})));
    fleet.commit("Let Ada work");
    for run in [&asked, &told] {
        assert_eq!(fleet.over(run)["liveness"], "productive");
    }
    fleet.until("all of it is done", |fleet| {
        (fleet.runs().len() == 4).then_some(())
    });
}

#[test]
fn an_operators_pause_lasts_until_it_is_taken_back_or_its_time_is_over() {
    let mut fleet = Fleet::plain();
    fleet.start();
    let live = fleet.dispatch(&fleet.gate("live"));
    fleet.running(&live);
    fleet
        .run(&["pause", "ada", "--reason", "a look at its last commit"])
        .expect(0);
    let asked = fleet.dispatch("say Asked");
    let told = fleet.run(&["send", "room", "say Told"]).line();
    let why = fleet.held(&asked, "PausedByOperator");
    assert!(why.contains("a look at its last commit"), "{why}");
    fleet.held(&told, "PausedByOperator");
    // A pause holds what is new, and never ends what is live; a restart keeps it.
    assert_eq!(fleet.running(&live)["endedAt"], Value::Null);
    fleet.open("live");
    assert_eq!(fleet.over(&live)["status"], "completed");
    fleet.restart();
    fleet.held(&asked, "PausedByOperator");
    fleet.run(&["resume", "ada"]).expect(0);
    for run in [&asked, &told] {
        assert_eq!(fleet.over(run)["liveness"], "completed");
    }
    fleet.run(&["pause", "ada", "--for", "2s"]).expect(0);
    let later = fleet.dispatch("say Later");
    fleet.held(&later, "PausedByOperator");
    assert_eq!(fleet.over(&later)["liveness"], "completed");
}

fn cap(enforcement: &str) -> Value {
    json!({
        "scope": {"kind": "agent", "name": "ada"},
        "monthly": "$1.00",
        "reserve": "$0.40",
        "enforcement": enforcement,
    })
}

#[test]
fn a_gate_sets_aside_what_a_run_may_cost() {
    let mut fleet = Fleet::plain();
    fleet.put("BudgetPolicy", "cap", &cap("gate"));
    fleet.commit("Gate Ada");
    fleet.start();
    let spend = |micros: u32| fleet.dispatch(&format!("spend {micros}; say spent"));
    assert_eq!(fleet.over(&spend(550_000))["liveness"], "completed");
    // $0.55 spent: $0.40 more fits.
    assert_eq!(fleet.over(&spend(100_000))["liveness"], "completed");
    // $0.65 spent: it does not any more, and nothing is exhausted yet.
    let why = fleet.held(&spend(10_000), "BudgetExceeded");
    assert!(why.contains("$0.65") && why.contains("$0.40"), "{why}");
    assert_eq!(fleet.runs().len(), 2);
}

#[test]
fn a_run_that_does_not_say_what_it_cost_settles_at_what_was_set_aside() {
    let mut fleet = Fleet::plain();
    fleet.put("BudgetPolicy", "cap", &cap("gate"));
    fleet.commit("Gate Ada");
    fleet.start();
    for _ in 0..2 {
        assert_eq!(
            fleet.over(&fleet.dispatch("say nothing of money"))["liveness"],
            "completed"
        );
    }
    let why = fleet.held(&fleet.dispatch("say more"), "BudgetExceeded");
    assert!(why.contains("$0.80 spent"), "{why}");
}

#[test]
fn the_run_that_crosses_a_ceiling_is_ended_at_its_next_usage_event() {
    let mut fleet = Fleet::plain();
    fleet.put("BudgetPolicy", "cap", &cap("gateAndStop"));
    fleet.commit("Stop Ada in flight");
    fleet.start();
    let steps = "spend 300000; ".repeat(3);
    let prompt = format!("{steps}{}; say never", fleet.gate("rest"));
    let over = fleet.over(&fleet.dispatch(&format!("spend 300000; {prompt}")));
    assert_eq!(over["status"], "error");
    assert_eq!(over["liveness"], "failed");
    assert_eq!(over["errorFamily"], "budgetExceeded");
    assert_eq!(over["endReason"], "budget");
    // Over the ceiling by at most one usage event.
    assert_eq!(over["usage"]["costMicros"], 1_200_000);
    fleet.held(&fleet.dispatch("say more"), "PausedByBudget");
}

#[test]
fn tokens_bite_where_nothing_has_a_price() {
    let mut fleet = Fleet::plain();
    fleet.put("Agent", "ada", &ada(&json!({"model": "house-model-7"})));
    let cap = json!({
        "scope": {"kind": "agent", "name": "ada"},
        "tokens": 250_000,
        "enforcement": "gateAndStop",
    });
    fleet.put("BudgetPolicy", "cap", &cap);
    fleet.commit("Stop Ada in flight by tokens");
    fleet.start();
    let prompt = format!("{}; say never", fleet.gate("rest"));
    let run = fleet.dispatch(&format!("tokens 100000; tokens 149999; tokens 2; {prompt}"));
    let over = fleet.over(&run);
    assert_eq!(over["errorFamily"], "budgetExceeded");
    assert_eq!(over["endReason"], "budget");
    assert_eq!(over["usage"]["inputTokens"], 250_001);
    let why = fleet.held(&fleet.dispatch("say more"), "PausedByBudget");
    assert!(why.contains("250,001 tokens of 250,000 tokens"), "{why}");
    let budget = fleet.json(&["budget"])["budgets"][0].clone();
    assert_eq!(budget["state"], "paused");
    assert_eq!(budget["uses"].as_array().unwrap().len(), 1);
    assert_eq!(budget["uses"][0]["meter"], "tokens");
    assert_eq!(budget["uses"][0]["spent"], 250_001);
    assert_eq!(budget["uses"][0]["remaining"], 0);
    assert_eq!(budget["unpricedRuns"], 1);
    let events = fleet.run(&["events"]).expect(0).stdout;
    let said = "BudgetThresholdCrossed Agent shop/ada, hard: 250,001 tokens of 250,000 tokens in ";
    assert!(events.contains(said), "{events}");
}

#[test]
fn a_gate_in_tokens_sets_aside_what_runs_used() {
    let mut fleet = Fleet::plain();
    let cap = json!({
        "scope": {"kind": "workspace", "name": "shop"},
        "tokens": 106_500,
        "enforcement": "gate",
    });
    fleet.put("BudgetPolicy", "cap", &cap);
    fleet.commit("Gate the shop by tokens");
    fleet.start();
    // Five runs leave no room for the round figure, and tell what a run uses.
    for _ in 0..5 {
        let run = fleet.dispatch("tokens 1400; say spent");
        assert_eq!(fleet.over(&run)["liveness"], "completed");
    }
    // One that says nothing of tokens settles at what was set aside for it.
    assert_eq!(
        fleet.over(&fleet.dispatch("say nothing"))["liveness"],
        "completed"
    );
    let spent = fleet.json(&["budget"])["budgets"][0]["uses"][0].clone();
    assert_eq!(
        (&spent["spent"], &spent["unknownRuns"]),
        (&json!(8_400), &json!(1))
    );
}

#[test]
fn money_does_not_gate_a_model_without_a_price() {
    let mut fleet = Fleet::plain();
    fleet.put("Agent", "ada", &ada(&json!({"model": "house-model-7"})));
    fleet.put("BudgetPolicy", "cap", &cap("gate"));
    fleet.commit("Gate Ada");
    fleet.start();
    let run = fleet.dispatch("say hello");
    let why = fleet.held(&run, "ModelUnpriced");
    assert!(why.contains("house-model-7"), "{why}");
    assert_eq!(fleet.runs().len(), 0);
    let mut told = fleet.get("adapter", "told")["manifest"]["spec"].clone();
    told["prices"] = json!([{"model": "house-model-7", "input": "$1.00", "output": "$2.00"}]);
    fleet.put("Adapter", "told", &told);
    fleet.commit("Price it");
    assert_eq!(fleet.over(&run)["liveness"], "completed");
}

#[test]
fn every_scope_gates() {
    let mut fleet = Fleet::plain();
    fleet.start();
    let spent = fleet.dispatch("spend 500000; say spent");
    assert_eq!(fleet.over(&spent)["liveness"], "completed");
    for (kind, name) in [
        ("agent", "ada"),
        ("space", "room"),
        ("repo", "app"),
        ("workspace", "shop"),
        ("fleet", ""),
    ] {
        let cap = |monthly: &str| {
            let mut policy = json!({
                "apiVersion": "homeostat/v1alpha1", "kind": "BudgetPolicy",
                "metadata": {"name": kind},
                "spec": {"scope": {"kind": kind}, "monthly": monthly, "enforcement": "gate"},
            });
            if kind != "fleet" {
                policy["metadata"]["workspace"] = json!("shop");
                policy["spec"]["scope"]["name"] = json!(name);
            }
            fs::write(fleet.file_of("BudgetPolicy", kind), policy.to_string()).unwrap();
            fleet.commit(&format!("Gate the {kind} at {monthly}"));
        };
        cap("$1.00");
        fleet.until("the gate is there", |fleet| {
            let names = fleet.run(&["budget", "--output", "name"]).stdout;
            let is_there = |line: &str| line.starts_with("BudgetPolicy/") && line.ends_with(kind);
            names.lines().any(is_there).then_some(())
        });
        let run = fleet.dispatch("spend 0; say more");
        let why = fleet.held(&run, "BudgetExceeded");
        assert!(
            why.contains("$0.50 spent and $0.00 set aside of $1.00"),
            "{why}"
        );
        cap("$9.00");
        assert_eq!(fleet.over(&run)["liveness"], "completed");
    }
}
