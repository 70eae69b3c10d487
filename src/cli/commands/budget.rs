//! `budget`: what was spent this month, of what.

use jiff::Timestamp;

use crate::api::dto::Budget;
use crate::cli::error::{CliResult, Exit};
use crate::cli::form::Form;
use crate::cli::host::Host;
use crate::cli::reader::Reader;
use crate::cli::show;
use crate::cli::table::Table;
use crate::cli::ui::Ui;
use crate::clock::{Clock, SystemClock};

/// Show budgets, what was spent of them this month, and what they pause
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Choose the form of the result
    #[arg(long, short, value_enum, default_value_t = Form::Text)]
    output: Form,
}

/// Shows them.
pub(crate) fn run(args: &Args, host: &Host, ui: &mut Ui) -> CliResult {
    let list = Reader::open(host, ui)?.budgets()?;
    match args.output {
        Form::Json => ui.json(&list)?,
        Form::Text if list.budgets.is_empty() => ui.say("no budgets"),
        Form::Text => ui.result(&table(&list.budgets, SystemClock.now()))?,
    }
    Ok(Exit::Fine)
}

fn table(budgets: &[Budget], now: Timestamp) -> String {
    let mut table = Table::new(&[
        "BUDGET",
        "SCOPE",
        "MONTH",
        "SPENT",
        "CEILING",
        "USED",
        "UNPRICED",
        "CROSSED",
        "PAUSED FOR",
    ]);
    for budget in budgets {
        let scope = match &budget.scope_name {
            Some(name) => format!("{} {name}", budget.scope),
            None => budget.scope.clone(),
        };
        let crossed: Vec<String> = budget
            .incidents
            .iter()
            .map(|it| it.kind.to_string())
            .collect();
        table.row([
            budget.budget.clone(),
            scope,
            budget.window.clone(),
            show::money(budget.spent_micros),
            ceiling(budget.ceiling_micros),
            used(budget.spent_micros, budget.ceiling_micros),
            match budget.unpriced_runs {
                0 => String::new(),
                runs => format!("{runs} runs"),
            },
            crossed.join(", "),
            budget
                .paused_since
                .map(|since| show::age(since, now))
                .unwrap_or_default(),
        ]);
    }
    table.render()
}

fn ceiling(micros: i64) -> String {
    if micros == 0 {
        return "unlimited".to_owned();
    }
    show::money(micros)
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

    #[test]
    fn zero_is_no_ceiling() {
        assert_eq!(
            (ceiling(0), used(5, 0)),
            ("unlimited".to_owned(), String::new())
        );
        assert_eq!(
            (ceiling(20_000), used(30_000, 20_000)),
            ("$0.02".to_owned(), "150 %".to_owned())
        );
    }
}
