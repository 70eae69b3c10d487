//! A provider that asks to be left alone is left alone, by this run's next attempt and by others.

use jiff::Timestamp;

use super::registry::Shared;
use crate::gateway::{Notice, TroubleKind, UpstreamTrouble};
use crate::model::id::RunId;
use crate::store::StoreError;

/// Puts on record what the provider asks for, if it does, before anything else is made of the notice.
/// It is told to the loop at once: it holds others while this run still goes on.
pub(super) async fn heed(
    shared: &Shared,
    run: RunId,
    notice: &Notice,
    now: Timestamp,
) -> Result<(), StoreError> {
    let Notice::Trouble(UpstreamTrouble {
        kind: TroubleKind::Status(status),
        retry_after: Some(wait),
        ..
    }) = notice
    else {
        return Ok(());
    };
    if !is_passing(*status) {
        return Ok(());
    }
    let until = now.saturating_add(*wait).unwrap_or(now);
    let noted = shared.store.note_provider(run, until, *status).await?;
    tracing::info!(%run, status, %until, ?noted, "the model's provider asks to be left alone");
    (shared.on_change)("provider asks to be left alone");
    Ok(())
}

/// Whether a refusal with that status is about the moment: too many requests, or trouble of its own.
const fn is_passing(status: u16) -> bool {
    status == 429 || status >= 500
}
