//! Crash points: places where the daemon can be made to die, so that a test can prove that
//! dying there loses and doubles nothing. Releases compile them to nothing.

use strum::{Display, EnumIter, EnumString};

/// Every place. A test names each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display, EnumIter, EnumString)]
#[strum(serialize_all = "camelCase")]
pub enum CrashPoint {
    /// A revision was accepted; nothing was planned for it.
    RevisionAccepted,
    /// A worktree's row is written; nothing is on disk.
    WorktreeRecorded,
    /// A worktree is on disk; its row still says `provisioning`.
    WorktreeMade,
    /// A wake was claimed and its run's row written; no process exists.
    RunAdmitted,
    /// The shim exists; its identity is not stored.
    ShimSpawned,
    /// The identity is stored; the agent was not released.
    IdentityStored,
    /// The agent was released; no event is stored.
    AgentReleased,
    /// Some events are stored.
    EventStored,
    /// The process is gone; the run's row is live.
    ProcessGone,
    /// The run's row is closed; nothing was drawn from it.
    RunClosed,
    /// The run is settled.
    RunSettled,
    /// An orphan was killed and confirmed; its row is live.
    OrphanKilled,
    /// A reclaimed tree's salvage is stored; the tree is in place.
    TreeSalvaged,
    /// A reclaimed tree is in the trash; its row remains.
    TreeTrashed,
}

/// What happens at a point: installed once by the daemon when it is told to die somewhere.
#[cfg(feature = "test-support")]
static HOOK: std::sync::OnceLock<Box<dyn Fn(CrashPoint) + Send + Sync>> =
    std::sync::OnceLock::new();

/// Installs what happens at a point. Later calls change nothing.
#[cfg(feature = "test-support")]
pub fn install(hook: impl Fn(CrashPoint) + Send + Sync + 'static) {
    let _already_installed = HOOK.set(Box::new(hook)).is_err();
}

/// Marks a place.
#[cfg(feature = "test-support")]
pub fn crash_point(point: CrashPoint) {
    if let Some(hook) = HOOK.get() {
        hook(point);
    }
}

/// Marks a place.
#[cfg(not(feature = "test-support"))]
pub const fn crash_point(_point: CrashPoint) {}
