//! How a run ended, in the words of the record: one pure function over facts.
//!
//! Structured evidence decides, in this order: what we did ourselves, what the agent or its
//! adapter reported, whether it came to its end, its exit. Never prose: no word of an agent's
//! output makes a run a success or puts it in a family.

use std::time::Duration;

use crate::model::run::{EndReason, ErrorFamily, Liveness, RunStatus};
use crate::model::tool::{Contract, Verb};
use crate::model::units::Span;

use super::transcript::ReportedError;
use crate::adapter::SESSION_NOT_FOUND;

pub use crate::model::process::Exit;

/// The most of a summary, in characters.
pub const SUMMARY_CHARS_MAX: usize = 200;

/// Everything that decides.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// Who ended the run: what *we* caused, if we did. A stop that was asked for before the daemon
    /// died is that stop, not [`EndReason::DaemonLost`].
    pub end: EndReason,
    /// How the process went.
    pub exit: Exit,
    /// Whether the agent came to its end: its `done` event.
    pub has_done: bool,
    /// What was reported to have failed last.
    pub last_error: Option<&'a ReportedError>,
    /// What the agent said last; empty when it said nothing.
    pub last_text: &'a str,
    /// Whether a worktree differs from where the run began.
    pub has_changed_tree: bool,
    /// What the run owed, and whether it was handed in; none where nothing in particular is owed.
    pub contract: Option<Contract>,
    /// How long the agent may say nothing.
    pub silence: Duration,
}

/// What the record says.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct Outcome {
    /// `completed` or `error`.
    pub status: RunStatus,
    /// How it did.
    pub liveness: Liveness,
    /// The group of its failure.
    pub family: Option<ErrorFamily>,
    /// The structured code of its failure.
    pub error_code: Option<String>,
    /// One line: of the answer, or what went wrong.
    pub summary: String,
    /// Who ended it. A run that was lost after its agent had finished is the agent's.
    pub end_reason: EndReason,
    /// Whether trying again could help.
    pub is_retryable: bool,
}

/// Classifies a run (design §8.10).
pub fn classify(facts: &Facts<'_>) -> Outcome {
    use EndReason as End;
    let caused = |liveness, family, summary: String| Outcome {
        status: RunStatus::Error,
        liveness,
        family,
        error_code: None,
        summary,
        end_reason: facts.end,
        is_retryable: facts.end.is_retryable(),
    };
    let ours = |summary: &str| caused(Liveness::Failed, None, summary.to_owned());
    let lost = |summary: &str| {
        let family = Some(ErrorFamily::ProcessLost);
        caused(Liveness::Dead, family, summary.to_owned())
    };
    match facts.end {
        End::StoppedByHuman => ours("stopped by a person"),
        End::TakenOver => ours("ended because a person took its space over"),
        End::Interrupted => ours("interrupted by a message"),
        End::Estop => ours("ended by the emergency stop"),
        End::Removed => ours("ended because its agent, space or ticket was removed"),
        End::Silence => {
            let silence = Span::from_secs(facts.silence.as_secs());
            let summary = format!("said nothing for {silence} and was ended");
            caused(Liveness::Stalled, Some(ErrorFamily::SilentRun), summary)
        }
        // An agent may answer our signal with `done`: that ends it, and finishes nothing.
        End::DaemonShutdown => lost("ended because the daemon stopped"),
        // Nobody had asked it to end: what was finished then is not done again.
        End::DaemonLost if facts.has_done => finished(facts),
        End::DaemonLost => lost("lost with the daemon that ran it"),
        End::Budget => caused(
            Liveness::Failed,
            Some(ErrorFamily::BudgetExceeded),
            "ended because its budget is spent".to_owned(),
        ),
        End::LaunchFailed => launch_failed(facts),
        End::AgentFinished => finished(facts),
    }
}

fn launch_failed(facts: &Facts<'_>) -> Outcome {
    Outcome {
        error_code: facts.last_error.and_then(|error| error.code.clone()),
        ..failed(
            Some(ErrorFamily::SandboxInfrastructure),
            facts
                .last_error
                .map_or("could not be started", |error| error.message.as_str()),
            EndReason::LaunchFailed,
        )
    }
}

/// A run that nobody ended.
fn finished(facts: &Facts<'_>) -> Outcome {
    let end = EndReason::AgentFinished;
    if let Some(error) = facts.last_error {
        let code = error.code.as_deref();
        let upstream = code.and_then(upstream);
        // A program that a signal killed crashed, or was killed for its memory.
        let has_crashed = code == Some("signal");
        return Outcome {
            liveness: if has_crashed {
                Liveness::Dead
            } else {
                Liveness::Failed
            },
            error_code: error.code.clone(),
            // Without the session that its program has lost, it begins a new one.
            is_retryable: upstream == Some(Upstream::Passing) || code == Some(SESSION_NOT_FOUND),
            ..failed(
                Some(match upstream {
                    Some(_) => ErrorFamily::TransientUpstream,
                    None if has_crashed => ErrorFamily::ProcessLost,
                    None => ErrorFamily::Unknown,
                }),
                &error.message,
                end,
            )
        };
    }
    // An agent that said it was done is believed over the way its process went.
    if facts.has_done {
        return clean(facts);
    }
    let dead = |code: Option<&str>, summary: &str| Outcome {
        liveness: Liveness::Dead,
        error_code: code.map(ToOwned::to_owned),
        ..failed(Some(ErrorFamily::ProcessLost), summary, end)
    };
    match facts.exit {
        Exit {
            signal: Some(signal),
            ..
        } => dead(
            Some("signal"),
            &format!("the agent was killed by signal {signal}"),
        ),
        Exit {
            code: Some(code), ..
        } if code != 0 => Outcome {
            error_code: Some("exit".to_owned()),
            ..failed(
                Some(ErrorFamily::Unknown),
                &format!("the agent exited with code {code}"),
                end,
            )
        },
        Exit { .. } => dead(None, "the agent went away without an end"),
    }
}

/// An end that the agent calls good. Where something is owed, only that counts: neither words nor
/// changes stand in for it, and no word of the agent's covers up that it is missing.
fn clean(facts: &Facts<'_>) -> Outcome {
    let empty = |summary: &str| {
        let family = Some(ErrorFamily::SilentRun);
        (Liveness::Empty, family, summary.to_owned())
    };
    let productive = |silent: &str| {
        let said = first_line(facts.last_text);
        let summary = said.unwrap_or_else(|| silent.to_owned());
        (Liveness::Productive, None, summary)
    };
    let (liveness, family, summary) = match facts.contract {
        Some(contract) if contract.is_met => productive(handed_in(contract.verb)),
        Some(contract) => empty(&not_handed_in(contract.verb)),
        None if facts.has_changed_tree => productive("changed files and said nothing"),
        None => match first_line(facts.last_text) {
            Some(said) => (Liveness::Completed, None, said),
            None => empty("said nothing and changed nothing"),
        },
    };
    Outcome {
        status: RunStatus::Completed,
        liveness,
        family,
        error_code: None,
        summary,
        end_reason: EndReason::AgentFinished,
        is_retryable: false,
    }
}

/// That the deliverable is there, in words.
const fn handed_in(verb: Verb) -> &'static str {
    match verb {
        Verb::SubmitPlan => "handed in a plan and said nothing",
        Verb::GetMessages | Verb::Remember | Verb::Recall => "did what it owed and said nothing",
    }
}

/// That the deliverable is missing, in words.
fn not_handed_in(verb: Verb) -> String {
    match verb {
        Verb::SubmitPlan => format!("no plan: plan mode ended without a call of {verb}"),
        Verb::GetMessages | Verb::Remember | Verb::Recall => {
            format!("nothing delivered: the run ended without a call of {verb}")
        }
    }
}

fn failed(family: Option<ErrorFamily>, message: &str, end_reason: EndReason) -> Outcome {
    Outcome {
        status: RunStatus::Error,
        liveness: Liveness::Failed,
        family,
        error_code: None,
        summary: first_line(message).unwrap_or_else(|| "failed without a word".to_owned()),
        end_reason,
        is_retryable: false,
    }
}

/// Trouble with the model's provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Upstream {
    /// It passes.
    Passing,
    /// It stays until someone acts.
    Lasting,
}

/// What a structured code says of the provider.
fn upstream(code: &str) -> Option<Upstream> {
    match code {
        "rate_limit_error" | "overloaded_error" | "api_error" | "timeout_error" => {
            Some(Upstream::Passing)
        }
        "authentication_error" | "permission_error" | "invalid_request_error" => {
            Some(Upstream::Lasting)
        }
        _ => None,
    }
}

/// The first line that says something, bounded by [`SUMMARY_CHARS_MAX`].
fn first_line(text: &str) -> Option<String> {
    let line = text.lines().map(str::trim).find(|line| !line.is_empty())?;
    let flat: String = line
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    if flat.chars().count() <= SUMMARY_CHARS_MAX {
        return Some(flat);
    }
    let mut cut: String = flat.chars().take(SUMMARY_CHARS_MAX - 1).collect();
    cut.push('…');
    Some(cut)
}

#[cfg(test)]
mod tests {
    use strum::IntoEnumIterator;

    use super::*;

    const REPLY: &str = "\n  All green.  \nDetails follow.";

    fn facts(end: EndReason) -> Facts<'static> {
        Facts {
            end,
            exit: Exit::with_code(0),
            has_done: true,
            last_error: None,
            last_text: REPLY,
            has_changed_tree: true,
            contract: None,
            silence: Duration::from_secs(900),
        }
    }

    fn owing(facts: Facts<'_>, is_met: bool) -> Facts<'_> {
        let verb = Verb::SubmitPlan;
        Facts {
            contract: Some(Contract { verb, is_met }),
            ..facts
        }
    }

    fn reported(code: Option<&str>, message: &str) -> ReportedError {
        ReportedError {
            code: code.map(ToOwned::to_owned),
            message: message.to_owned(),
        }
    }

    /// One line: status, liveness, family, code, end, whether to try again, summary.
    fn row(outcome: &Outcome) -> String {
        let Outcome {
            status,
            liveness,
            family,
            error_code,
            summary,
            end_reason,
            is_retryable,
        } = outcome;
        let family = family.map_or_else(|| "-".to_owned(), |family| family.to_string());
        let code = error_code.as_deref().unwrap_or("-");
        let again = if *is_retryable { "again" } else { "final" };
        format!("{status}/{liveness}/{family} {code} {end_reason} {again}: {summary}")
    }

    #[test]
    fn every_end_meets_every_evidence() {
        let overloaded = reported(Some("overloaded_error"), "Overloaded");
        let login = reported(Some("authentication_error"), "401 please log in");
        let own = reported(Some("E42"), "\nrate limit exceeded, 429\nand more");
        let mute = reported(None, " ");
        let mut table = Vec::new();
        for end in EndReason::iter() {
            let clean = facts(end);
            let quiet = Facts {
                last_text: " \n",
                ..clean
            };
            let undone = Facts {
                has_done: false,
                ..clean
            };
            let error = |error| Facts {
                last_error: Some(error),
                ..clean
            };
            let same_tree = |facts| Facts {
                has_changed_tree: false,
                ..facts
            };
            let exit = |exit| Facts { exit, ..undone };
            let rows = [
                ("done, changed a tree, spoke", clean),
                ("done, changed a tree", quiet),
                ("done, spoke", same_tree(clean)),
                ("done", same_tree(quiet)),
                (
                    "done, exit 1",
                    Facts {
                        exit: Exit::with_code(1),
                        ..clean
                    },
                ),
                ("error overloaded_error", error(&overloaded)),
                ("error authentication_error", error(&login)),
                ("error of its own", error(&own)),
                ("error without a word", error(&mute)),
                (
                    "error, not done",
                    Facts {
                        last_error: Some(&own),
                        ..undone
                    },
                ),
                ("not done, exit 0", undone),
                ("not done, exit 3", exit(Exit::with_code(3))),
                ("not done, signal 9", exit(Exit::by_signal(9))),
                ("not done, unseen", exit(Exit::default())),
                ("plan, spoke", owing(same_tree(clean), true)),
                ("plan", owing(same_tree(quiet), true)),
                ("no plan, spoke", owing(same_tree(clean), false)),
                ("no plan, changed a tree", owing(quiet, false)),
                ("plan, not done", owing(undone, true)),
                ("no plan, not done", owing(undone, false)),
                ("plan, error of its own", owing(error(&own), true)),
            ];
            table.push(format!("{end}"));
            for (evidence, facts) in rows {
                table.push(format!("  {evidence:<28}{}", row(&classify(&facts))));
            }
        }
        snapbox::assert_data_eq!(
            table.join("\n") + "\n",
            snapbox::file!["../../tests/data/dispatch/classify.txt"].raw()
        );
    }

    #[test]
    fn no_word_of_an_agent_decides() {
        for prose in [
            "429 too many requests",
            "blocked",
            "sandbox",
            "budget exceeded",
        ] {
            let outcome = classify(&Facts {
                last_text: prose,
                ..facts(EndReason::AgentFinished)
            });
            assert_eq!(outcome.liveness, Liveness::Productive, "{prose}");
            let outcome = classify(&owing(
                Facts {
                    last_text: prose,
                    ..facts(EndReason::AgentFinished)
                },
                false,
            ));
            assert_eq!(
                outcome.summary,
                "no plan: plan mode ended without a call of submit_plan"
            );
            let error = reported(None, prose);
            let outcome = classify(&Facts {
                last_error: Some(&error),
                ..facts(EndReason::AgentFinished)
            });
            assert_eq!(outcome.family, Some(ErrorFamily::Unknown), "{prose}");
        }
    }

    #[test]
    fn a_summary_is_one_bounded_line() {
        let long = format!("\u{1b}[1m{}\nnext", "é".repeat(300));
        let summary = classify(&Facts {
            last_text: &long,
            ..facts(EndReason::AgentFinished)
        })
        .summary;
        assert_eq!(summary.chars().count(), SUMMARY_CHARS_MAX);
        assert!(
            summary.starts_with(" [1mé") && summary.ends_with("é…"),
            "{summary}"
        );
        let exact = "x".repeat(SUMMARY_CHARS_MAX);
        let summary = classify(&Facts {
            last_text: &exact,
            ..facts(EndReason::AgentFinished)
        })
        .summary;
        assert_eq!(summary, exact);
    }
}
