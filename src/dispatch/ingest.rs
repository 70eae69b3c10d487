//! What happens to an event before anything keeps it: tokens get a price, and secrets are taken out.
//!
//! Where a run's model is reached through a gateway, the wire is the truth about tokens: what the
//! agent reports of them is compared at the end and never added up.

use std::sync::Arc;

use jiff::Timestamp;

use crate::gateway::{MeteredUsage, Notice, TroubleKind, UpstreamTrouble};
use crate::model::event::{AgentEvent, UsageReport};
use crate::model::run::{EndReason, Usage};
use crate::price::{Cost, PriceTable};
use crate::redact::{EventStream, Known, Redactor};

/// Who says what was used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Metering {
    /// The agent.
    Reported,
    /// The wire.
    Metered,
}

/// One run's stage between what is said and what is recorded.
pub(super) struct Ingest {
    redactor: Arc<Redactor>,
    words: EventStream,
    prices: Arc<PriceTable>,
    metering: Metering,
    reported: Usage,
    metered: Usage,
    /// Whether an answer may have cost what was not seen.
    is_unsure: bool,
}

impl Ingest {
    /// `secrets` are names and values that must not be seen.
    pub(super) fn new(
        secrets: &[(String, String)],
        prices: Arc<PriceTable>,
        metering: Metering,
    ) -> Self {
        let known: Vec<_> = secrets
            .iter()
            .map(|(name, value)| Known { name, value })
            .collect();
        Self {
            redactor: Arc::new(Redactor::new(&known)),
            words: EventStream::default(),
            prices,
            metering,
            reported: Usage::default(),
            metered: Usage::default(),
            is_unsure: false,
        }
    }

    /// Who knows the run's secrets.
    pub(super) fn redactor(&self) -> Arc<Redactor> {
        Arc::clone(&self.redactor)
    }

    /// Which prices hold, for the run's record.
    pub(super) fn price_table(&self) -> &str {
        self.prices.version()
    }

    /// Takes an event of the agent's.
    pub(super) fn said(&mut self, event: AgentEvent, now: Timestamp) -> Vec<AgentEvent> {
        let event = match event {
            AgentEvent::Usage { model, usage } => match self.metering {
                Metering::Metered => {
                    self.reported.add(&usage.into());
                    return Vec::new();
                }
                Metering::Reported => AgentEvent::Usage {
                    usage: self.priced(model.as_deref(), usage, now),
                    model,
                },
            },
            other => other,
        };
        self.words.feed(&self.redactor, &event)
    }

    /// Takes what the gateway has to say.
    pub(super) fn noticed(&mut self, notice: Notice, now: Timestamp) -> Vec<AgentEvent> {
        let event = match notice {
            Notice::Usage(MeteredUsage { model, usage, .. }) => {
                let usage = self.priced(model.as_deref(), usage, now);
                self.metered.add(&usage.into());
                AgentEvent::Usage { model, usage }
            }
            Notice::Trouble(trouble) => {
                let kind = &trouble.kind;
                self.is_unsure |= matches!(kind, TroubleKind::Unmetered | TroubleKind::FirstByte);
                AgentEvent::Debug {
                    message: in_words(&trouble),
                }
            }
        };
        self.words.feed(&self.redactor, &event)
    }

    /// What was held back, and how the agent's own count differs from the wire's, if it does. An agent
    /// that came to its end and was answered nothing has used nothing: that is known, and said.
    pub(super) fn finish(&mut self, end: EndReason) -> Vec<AgentEvent> {
        let mut events: Vec<_> = self.words.flush(&self.redactor).into_iter().collect();
        let is_free = self.metering == Metering::Metered
            && self.metered == Usage::default()
            && end == EndReason::AgentFinished
            && !self.is_unsure;
        if is_free {
            let usage = UsageReport {
                cost_micros: Some(0),
                ..UsageReport::default()
            };
            events.push(AgentEvent::Usage { model: None, usage });
        }
        let tokens = |usage: &Usage| {
            (
                usage.input_tokens,
                usage.output_tokens,
                usage.cached_read_tokens,
                usage.cached_write_tokens,
            )
        };
        let (reported, metered) = (tokens(&self.reported), tokens(&self.metered));
        if reported != (0, 0, 0, 0) && reported != metered {
            let message = format!(
                "the agent counts tokens otherwise (in, out, cache read, cache written): it says \
                 {reported:?}, the wire said {metered:?}"
            );
            events.push(AgentEvent::Debug { message });
        }
        events
    }

    /// The figures with their cost, where it is known: what was reported, else what the table says.
    fn priced(&self, model: Option<&str>, usage: UsageReport, now: Timestamp) -> UsageReport {
        let (Some(model), None) = (model, usage.cost_micros) else {
            return usage;
        };
        let cost = match self.prices.cost(model, None, &usage.into(), now) {
            Cost::Priced { micros } => u32::try_from(micros).ok(),
            Cost::Unpriced { .. } => None,
        };
        UsageReport {
            cost_micros: cost,
            ..usage
        }
    }
}

fn in_words(trouble: &UpstreamTrouble) -> String {
    let what = match &trouble.kind {
        TroubleKind::Unmetered => "an answer's tokens could not be counted".to_owned(),
        other => format!("the model's provider: {other:?}"),
    };
    match trouble.retry_after {
        Some(after) => format!("{what}; it asks to be left alone for {} s", after.as_secs()),
        None => what,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage(cost: Option<u32>) -> UsageReport {
        UsageReport {
            input_tokens: 2_400,
            output_tokens: 80,
            cached_read_tokens: 1_600,
            cached_write_tokens: 600,
            cost_micros: cost,
            ..UsageReport::default()
        }
    }

    fn ingest(metering: Metering) -> Ingest {
        let secrets = [("KEY".to_owned(), "s3cret-value".to_owned())];
        Ingest::new(&secrets, Arc::new(PriceTable::embedded(&[])), metering)
    }

    fn now() -> Timestamp {
        "2026-11-30T00:00:00Z".parse().unwrap()
    }

    #[test]
    fn tokens_get_a_price_unless_they_have_one_or_nobody_knows() {
        let mut ingest = ingest(Metering::Reported);
        let mut cost = |model: &str, cost| {
            let event = AgentEvent::Usage {
                model: Some(model.to_owned()),
                usage: usage(cost),
            };
            match ingest.said(event, now()).as_slice() {
                [AgentEvent::Usage { usage, .. }] => usage.cost_micros,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(cost("claude-sonnet-4-5", None), Some(11_130));
        assert_eq!(cost("claude-sonnet-4-5", Some(7)), Some(7));
        assert_eq!(cost("no-such-model", None), None);
    }

    #[test]
    fn the_wire_is_the_truth_where_there_is_one() {
        let mut ingest = ingest(Metering::Metered);
        let model = Some("claude-sonnet-4-5".to_owned());
        let reported = AgentEvent::Usage {
            model: model.clone(),
            usage: usage(Some(1)),
        };
        assert_eq!(ingest.said(reported, now()), []);
        let metered = MeteredUsage {
            request_id: None,
            model,
            usage: usage(None),
            is_complete: true,
        };
        let events = ingest.noticed(Notice::Usage(metered), now());
        assert!(matches!(
            events.as_slice(),
            [AgentEvent::Usage { usage, .. }] if usage.cost_micros == Some(11_130)
        ));
        assert_eq!(ingest.finish(EndReason::AgentFinished), []);
    }

    #[test]
    fn another_count_is_told_and_not_added() {
        let mut ingest = ingest(Metering::Metered);
        let reported = AgentEvent::Usage {
            model: None,
            usage: usage(None),
        };
        assert_eq!(ingest.said(reported, now()), []);
        assert!(matches!(
            ingest.finish(EndReason::Silence).as_slice(),
            [AgentEvent::Debug { .. }]
        ));
    }

    #[test]
    fn nothing_answered_costs_nothing_unless_something_may_have_been() {
        use EndReason as End;
        let trouble = |kind| {
            Some(UpstreamTrouble {
                kind,
                retry_after: None,
                request_id: None,
            })
        };
        for (metering, trouble, end, is_free) in [
            (Metering::Metered, None, End::AgentFinished, true),
            (
                Metering::Metered,
                trouble(TroubleKind::Status(401)),
                End::AgentFinished,
                true,
            ),
            (
                Metering::Metered,
                trouble(TroubleKind::FirstByte),
                End::AgentFinished,
                false,
            ),
            (
                Metering::Metered,
                trouble(TroubleKind::Unmetered),
                End::AgentFinished,
                false,
            ),
            // It may have been ended while it was answered.
            (Metering::Metered, None, End::Silence, false),
            (Metering::Metered, None, End::StoppedByHuman, false),
            (Metering::Reported, None, End::AgentFinished, false),
        ] {
            let mut ingest = ingest(metering);
            if let Some(trouble) = trouble.clone() {
                drop(ingest.noticed(Notice::Trouble(trouble), now()));
            }
            let costs = |event: &AgentEvent| match event {
                AgentEvent::Usage { usage, .. } => usage.cost_micros,
                _ => None,
            };
            let cost: Vec<_> = ingest.finish(end).iter().filter_map(costs).collect();
            let expected: &[u32] = if is_free { &[0] } else { &[] };
            assert_eq!(cost, expected, "{metering:?} {trouble:?} {end}");
        }
    }

    #[test]
    fn a_secret_is_not_recorded() {
        let mut ingest = ingest(Metering::Reported);
        let text = "I was told s3cret-value.".to_owned();
        let mut said = ingest.said(AgentEvent::Text { text }, now());
        said.extend(ingest.finish(EndReason::AgentFinished));
        let said = format!("{said:?}");
        assert!(
            !said.contains("s3cret") && said.contains("redacted:KEY"),
            "{said}"
        );
    }
}
