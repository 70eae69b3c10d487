//! An answer on its way to the run: each piece goes on as it comes, is looked at by the meter, and
//! starts the silence clock again.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::http::StatusCode;
use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use tokio::sync::mpsc::OwnedPermit;
use tokio::time::{Instant, Sleep, sleep};
use tokio_util::sync::WaitForCancellationFutureOwned;

use super::answer::Refusal;
use super::meter::Meter;
use super::{Gate, MeteredUsage, Notice, TroubleKind, UpstreamTrouble};

/// Room for what one request may have to report: its usage, and the first trouble that it had.
#[derive(Debug)]
pub(super) struct Outlets {
    pub(super) usage: Option<OwnedPermit<Notice>>,
    pub(super) trouble: Option<OwnedPermit<Notice>>,
}

impl Outlets {
    /// Reports trouble, if it is the request's first.
    pub(super) fn report(&mut self, trouble: UpstreamTrouble) {
        if let Some(permit) = self.trouble.take() {
            drop(permit.send(Notice::Trouble(trouble)));
        }
    }
}

/// An answer's body. When it ends, or is dropped before that, what was seen of it is reported.
#[derive(Debug)]
pub(super) struct Answer {
    /// None when no more of it is wanted.
    body: Option<Incoming>,
    meter: Meter,
    request_id: Option<String>,
    outlets: Outlets,
    gate: Arc<Gate>,
    silent_at: Pin<Box<Sleep>>,
    cut: Pin<Box<WaitForCancellationFutureOwned>>,
}

impl Answer {
    pub(super) fn new(
        body: Incoming,
        meter: Meter,
        gate: Arc<Gate>,
        request_id: Option<String>,
        outlets: Outlets,
    ) -> Self {
        Self {
            body: Some(body),
            meter,
            request_id,
            outlets,
            silent_at: Box::pin(sleep(gate.timeouts.idle)),
            cut: Box::pin(gate.cut.clone().cancelled_owned()),
            gate,
        }
    }

    fn trouble(&mut self, kind: TroubleKind) {
        let request_id = self.request_id.clone();
        self.outlets.report(UpstreamTrouble {
            kind,
            retry_after: None,
            request_id,
        });
    }

    /// Ends the answer before its end: a stream by an error event, anything else by the end of its
    /// connection, which the agent's program notices because the rest is missing.
    fn break_off(&mut self, refusal: &Refusal) -> Option<io::Result<Frame<Bytes>>> {
        self.report();
        Some(match self.meter {
            Meter::Stream(_) => Ok(Frame::data(refusal.event())),
            Meter::Whole { .. } | Meter::Nothing => Err(io::Error::other(refusal.message.clone())),
        })
    }

    /// Reports what was seen, once.
    fn report(&mut self) {
        self.body = None;
        let Some(permit) = self.outlets.usage.take() else {
            return;
        };
        let Some(reading) = self.meter.read() else {
            return;
        };
        if let Some(error) = reading.error {
            self.trouble(TroubleKind::InStream(error));
        }
        if reading.has_usage {
            drop(permit.send(Notice::Usage(MeteredUsage {
                request_id: self.request_id.clone(),
                model: reading.model,
                usage: reading.usage,
                is_complete: reading.is_complete,
            })));
        } else {
            self.trouble(TroubleKind::Unmetered);
        }
    }
}

impl Body for Answer {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let this = &mut *self;
        let Some(body) = &mut this.body else {
            return Poll::Ready(None);
        };
        if this.cut.as_mut().poll(cx).is_ready() {
            let refusal = this.gate.cut_off();
            return Poll::Ready(this.break_off(&refusal));
        }
        match Pin::new(body).poll_frame(cx) {
            Poll::Ready(Some(Ok(frame))) => {
                if let Some(piece) = frame.data_ref() {
                    this.meter.push(piece);
                }
                let silent_at = Instant::now() + this.gate.timeouts.idle;
                this.silent_at.as_mut().reset(silent_at);
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(Some(Err(error))) => {
                tracing::debug!(error = &error as &dyn std::error::Error, "answer cut");
                this.trouble(TroubleKind::Cut);
                let message = "the model's provider hung up in the middle of its answer";
                let refusal = Refusal::upstream(StatusCode::BAD_GATEWAY, message);
                Poll::Ready(this.break_off(&refusal))
            }
            Poll::Ready(None) => {
                this.report();
                Poll::Ready(None)
            }
            Poll::Pending if this.silent_at.as_mut().poll(cx).is_ready() => {
                this.trouble(TroubleKind::Idle);
                let message = format!(
                    "the model's provider was silent for {} s in the middle of its answer",
                    this.gate.timeouts.idle.as_secs()
                );
                let refusal = Refusal::upstream(StatusCode::GATEWAY_TIMEOUT, message);
                Poll::Ready(this.break_off(&refusal))
            }
            Poll::Pending => Poll::Pending,
        }
    }

    fn is_end_stream(&self) -> bool {
        // An empty answer is polled once all the same, so that it is reported.
        self.body.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        match (&self.body, &self.meter) {
            // An error may be added.
            (_, Meter::Stream(_)) => SizeHint::default(),
            (Some(body), Meter::Whole { .. } | Meter::Nothing) => body.size_hint(),
            (None, Meter::Whole { .. } | Meter::Nothing) => SizeHint::with_exact(0),
        }
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        self.report();
    }
}
