//! `budget`: what was spent this month, of what, and where that leads.

use jiff::Timestamp;
use serde_json::Value;

use crate::api::dto::{Budget, BudgetList, BudgetState, BudgetUse};
use crate::cli::error::{CliResult, Exit, Kind, OrFail};
use crate::cli::form::ListForm;
use crate::cli::host::Host;
use crate::cli::reader::Reader;
use crate::cli::show;
use crate::cli::table::Table;
use crate::cli::ui::Ui;
use crate::clock::{Clock, SystemClock};
use crate::model::budget::Meter;
use crate::yaml;

/// Show budgets, what was spent of them this month, and what they pause
///
/// A budget in money and in tokens has a line for each. REMAINING is what is left for new runs: the
/// ceiling less what was spent and what is set aside for live runs. FORECAST is what is spent by
/// the end of the month if it goes on as it did since the month's start; in the first day of the
/// month there is too little to tell. UNKNOWN are runs of which nobody knows what they used.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Choose the form of the result
    #[arg(long, short, value_enum, default_value_t = ListForm::Table)]
    output: ListForm,
}

/// Shows them.
pub(crate) fn run(args: &Args, host: &Host, ui: &mut Ui) -> CliResult {
    let list = Reader::open(host, ui)?.budgets()?;
    print(args.output, &list, SystemClock.now(), ui)
}

fn print(form: ListForm, list: &BudgetList, now: Timestamp, ui: &mut Ui) -> CliResult {
    match form {
        ListForm::Json => ui.json(list)?,
        ListForm::Yaml => {
            for budget in &list.budgets {
                let value: Value = serde_json::to_value(budget)
                    .or_fail(Kind::Internal, "failed to write a budget as JSON")?;
                ui.line("---")?;
                ui.result(&yaml::emit(&value))?;
            }
        }
        ListForm::Name => {
            for budget in &list.budgets {
                ui.line(&budget.budget)?;
            }
        }
        ListForm::Table | ListForm::Wide if list.budgets.is_empty() => ui.say("no budgets"),
        ListForm::Table => ui.result(&table(&list.budgets, now))?,
        ListForm::Wide => ui.result(&wide(&list.budgets, now))?,
    }
    Ok(Exit::Fine)
}

fn table(budgets: &[Budget], now: Timestamp) -> String {
    let mut table = Table::new(&[
        "BUDGET",
        "SCOPE",
        "WINDOW",
        "SPENT",
        "RESERVED",
        "CEILING",
        "REMAINING",
        "FORECAST",
        "ENFORCEMENT",
        "STATE",
        "UNKNOWN",
    ]);
    for (budget, it) in lines(budgets) {
        table.row(cells(budget, it, now));
    }
    table.render()
}

fn wide(budgets: &[Budget], now: Timestamp) -> String {
    let mut table = Table::new(&[
        "BUDGET",
        "SCOPE",
        "WINDOW",
        "SPENT",
        "RESERVED",
        "CEILING",
        "REMAINING",
        "FORECAST",
        "ENFORCEMENT",
        "STATE",
        "UNKNOWN",
        "USED",
        "HARDSTOP",
        "CROSSED",
        "ENDS",
    ]);
    for (budget, it) in lines(budgets) {
        let [a, b, c, d, e, f, g, h, i, j, k] = cells(budget, it, now);
        let crossed = budget.incidents.iter().map(|it| it.kind.to_string());
        let crossed: Vec<String> = crossed.collect();
        let (used, ends) = (used(it.spent, it.ceiling), show::time(budget.window_end));
        let hard_stop = budget.hard_stop.to_string();
        let more = [used, hard_stop, crossed.join(", "), ends];
        let [l, m, n, o] = more;
        table.row([a, b, c, d, e, f, g, h, i, j, k, l, m, n, o]);
    }
    table.render()
}

/// Each ceiling of each budget.
fn lines(budgets: &[Budget]) -> impl Iterator<Item = (&Budget, &BudgetUse)> {
    budgets
        .iter()
        .flat_map(|budget| budget.uses.iter().map(move |it| (budget, it)))
}

fn cells(budget: &Budget, it: &BudgetUse, now: Timestamp) -> [String; 11] {
    let amount = |count: i64| it.meter.amount(count).to_string();
    let unknown = match (it.unknown_runs, it.meter) {
        (0, _) => String::new(),
        (runs, Meter::Money) => format!("{runs} unpriced"),
        (runs, Meter::Tokens) => format!("{runs} uncounted"),
    };
    [
        budget.budget.clone(),
        budget.scope.clone(),
        format!("{} {}", budget.window, budget.zone),
        amount(it.spent),
        amount(it.reserved),
        match it.ceiling {
            0 => "unlimited".to_owned(),
            ceiling => amount(ceiling),
        },
        it.remaining.map(amount).unwrap_or_default(),
        it.forecast.map_or_else(|| "too early".to_owned(), amount),
        budget.enforcement.to_string(),
        state(budget, now),
        unknown,
    ]
}

fn state(budget: &Budget, now: Timestamp) -> String {
    match (budget.state, budget.paused_since) {
        (BudgetState::Paused, Some(since)) => format!("paused for {}", show::age(since, now)),
        (state, _) => state.to_string(),
    }
}

fn used(spent: i64, ceiling: i64) -> String {
    if ceiling == 0 {
        return String::new();
    }
    format!("{} %", i128::from(spent) * 100 / i128::from(ceiling))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::spec::Enforcement;

    fn budget() -> Budget {
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        Budget {
            budget: "BudgetPolicy/shop/ada".to_owned(),
            scope: "Agent/shop/ada".to_owned(),
            window: "2026-11".to_owned(),
            zone: "Europe/Rome".to_owned(),
            window_start: at("2026-10-31T23:00:00Z"),
            window_end: at("2026-11-30T23:00:00Z"),
            enforcement: Enforcement::Gate,
            hard_stop: true,
            state: BudgetState::Paused,
            paused_since: Some(at("2026-11-15T22:00:00Z")),
            uses: vec![
                BudgetUse {
                    meter: Meter::Money,
                    ceiling: 5_000_000,
                    spent: 2_500_000,
                    reserved: 400_000,
                    remaining: Some(2_100_000),
                    forecast: Some(5_000_000),
                    unknown_runs: 2,
                },
                BudgetUse {
                    meter: Meter::Tokens,
                    ceiling: 0,
                    spent: 1_234_567,
                    reserved: 0,
                    remaining: None,
                    forecast: None,
                    unknown_runs: 0,
                },
            ],
            spent_micros: 2_500_000,
            spent_tokens: 1_234_567,
            unpriced_runs: 2,
            incidents: Vec::new(),
        }
    }

    #[test]
    fn each_ceiling_has_its_line() {
        let now = "2026-11-15T23:00:00Z".parse().unwrap();
        snapbox::assert_data_eq!(
            table(&[budget()], now),
            snapbox::str![[r#"
BUDGET                 SCOPE           WINDOW               SPENT             RESERVED  CEILING    REMAINING  FORECAST   ENFORCEMENT  STATE          UNKNOWN
BudgetPolicy/shop/ada  Agent/shop/ada  2026-11 Europe/Rome  $2.50             $0.40     $5.00      $2.10      $5.00      gate         paused for 1h  2 unpriced
BudgetPolicy/shop/ada  Agent/shop/ada  2026-11 Europe/Rome  1,234,567 tokens  0 tokens  unlimited  -          too early  gate         paused for 1h  -

"#]]
        );
        snapbox::assert_data_eq!(
            wide(&[budget()], now),
            snapbox::str![[r#"
BUDGET                 SCOPE           WINDOW               SPENT             RESERVED  CEILING    REMAINING  FORECAST   ENFORCEMENT  STATE          UNKNOWN     USED  HARDSTOP  CROSSED  ENDS
BudgetPolicy/shop/ada  Agent/shop/ada  2026-11 Europe/Rome  $2.50             $0.40     $5.00      $2.10      $5.00      gate         paused for 1h  2 unpriced  50 %  true      -        2026-11-30T23:00:00Z
BudgetPolicy/shop/ada  Agent/shop/ada  2026-11 Europe/Rome  1,234,567 tokens  0 tokens  unlimited  -          too early  gate         paused for 1h  -           -     true      -        2026-11-30T23:00:00Z

"#]]
        );
    }

    #[test]
    fn zero_is_no_ceiling() {
        assert_eq!(used(5, 0), "");
        assert_eq!(used(30_000, 20_000), "150 %");
    }
}
