use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;

use super::{Executor, Settings, Submitted};
use crate::clock::{Clock, SystemClock};
use crate::dispatch::{OnChange, RunSettings, Runs, Started};
use crate::model::action::{Action, TreeOrder};
use crate::model::budget::Reservation;
use crate::model::id::{ConversationId, RunId, Uid, WakeId, WorktreeId};
use crate::model::kind::{Kind, ObjectRef, Revision};
use crate::model::observed::{TreePhase, Worktree, WorktreeBackend};
use crate::model::run::{EndReason, RunOrder};
use crate::model::spec::{AdapterSpec, AdapterType, GitIdentity, Mode, OutputFormat};
use crate::model::units::Name;
use crate::model::wake::WakeReason;
use crate::store::{Effect, Store};
use crate::task::Tracker;
use crate::worktree::layout::Layout;

struct Rig {
    executor: Executor,
    store: Store,
    _data: TempDir,
}

impl Rig {
    fn new() -> Self {
        let data = TempDir::new().unwrap();
        let layout = Layout::new(data.path());
        layout.ensure().unwrap();
        let store = Store::open(&data.path().join("homeostat.db")).unwrap();
        let (tracker, on_change): (_, OnChange) = (Tracker::new(), Arc::new(|_reason| {}));
        let runs = RunSettings::for_test(&layout, &tracker);
        let settings = Settings {
            layout,
            backend: WorktreeBackend::Git,
            user: runs.user(),
            source_base: Some(data.path().to_owned()),
        };
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let runs = Runs::new(
            store.clone(),
            Arc::clone(&clock),
            tracker.clone(),
            runs,
            Arc::clone(&on_change),
        );
        let executor = Executor::new(settings, store.clone(), runs, clock, tracker, on_change);
        Self {
            executor,
            store,
            _data: data,
        }
    }

    async fn submit(&self, action: Action) {
        let submitted = self.executor.submit(action, 0).await.unwrap();
        assert_eq!(submitted, Submitted::Begun);
    }

    /// Waits until the worktree's row is or is not there.
    async fn row(&self, is_there: bool) -> Option<Worktree> {
        soon(async || {
            let row = self.store.worktree(worktree()).await.unwrap();
            (row.is_some() == is_there).then_some(row)
        })
        .await
    }

    async fn landed(&self) {
        soon(async || self.executor.in_flight().is_empty().then_some(())).await;
    }
}

/// Looks again and again, but not for ever.
async fn soon<T>(look: impl AsyncFn() -> Option<T>) -> T {
    let looks = async {
        loop {
            if let Some(found) = look().await {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), looks)
        .await
        .expect("it never comes")
}

fn worktree() -> WorktreeId {
    WorktreeId::derived(&["app"])
}

fn provision() -> Action {
    Action::ProvisionWorktree(Box::new(TreeOrder {
        worktree: worktree(),
        workspace: Uid::derived(&["shop"]),
        space: Uid::derived(&["room"]),
        generation: 1,
        repo: Uid::derived(&["repo"]),
        repo_generation: 1,
        repo_name: "app".to_owned(),
        source: "nowhere".to_owned(),
        base_branch: None,
        branch: "homeostat/room".parse().unwrap(),
    }))
}

const fn reclaim(worktree: WorktreeId) -> Action {
    Action::ReclaimWorktree { worktree }
}

#[tokio::test]
async fn a_worktree_is_not_reclaimed_while_it_is_made() {
    let rig = Rig::new();
    let permits = rig.executor.shared.trees.acquire_many(2).await.unwrap();
    rig.submit(provision()).await;
    rig.row(true).await;
    rig.submit(reclaim(worktree())).await;
    assert_eq!(rig.executor.in_flight().len(), 1);
    drop(permits);
    rig.landed().await;
    // There is no source: making it failed, and that is all that happened.
    let row = rig.row(true).await.unwrap();
    assert_eq!(row.phase, TreePhase::Provisioning);
    rig.submit(reclaim(worktree())).await;
    rig.row(false).await;
}

#[tokio::test]
async fn a_worktree_whose_row_went_while_it_waited_is_not_made() {
    let rig = Rig::new();
    let permits = rig.executor.shared.trees.acquire_many(2).await.unwrap();
    rig.submit(provision()).await;
    rig.row(true).await;
    let effect = rig.store.worktree_reclaiming(worktree()).await.unwrap();
    assert_eq!(effect, Effect::Applied);
    drop(permits);
    rig.landed().await;
    assert_eq!(rig.row(true).await.unwrap().phase, TreePhase::Reclaiming);
    let observed = rig.store.observe(SystemClock.now()).await.unwrap();
    assert_eq!(observed.backoffs.len(), 0, "{:?}", observed.backoffs);
}

#[tokio::test]
async fn no_run_starts_once_the_runs_are_closed() {
    let rig = Rig::new();
    let runs = rig.executor.runs();
    runs.close(EndReason::DaemonShutdown);
    let refused = runs.start(order()).await.unwrap();
    assert!(matches!(refused, Started::Refused(why) if why.contains("stopping")));
    assert_eq!(runs.attached().len(), 0);
}

fn order() -> RunOrder {
    let wake = WakeId::derived(&["wake"]);
    let (agent, name): (_, Name) = (Uid::derived(&["ada"]), "ada".parse().unwrap());
    let space = Uid::derived(&["room"]);
    RunOrder {
        run: RunId::of(wake),
        wake,
        reason: WakeReason::FollowUp,
        attempt: 0,
        workspace: Uid::derived(&["shop"]),
        workspace_name: "shop".to_owned(),
        agent,
        agent_ref: ObjectRef {
            kind: Kind::Agent,
            workspace: Some("shop".parse().unwrap()),
            name,
        },
        agent_title: "Ada".to_owned(),
        persona: None,
        skills: Vec::new(),
        space,
        space_name: "room".to_owned(),
        conversation: ConversationId::main_of(space),
        ticket: None,
        adapter_name: "told".to_owned(),
        adapter: AdapterSpec {
            r#type: AdapterType::Command,
            command: Some("true".to_owned()),
            prices: Vec::new(),
            args: Vec::new(),
            env: BTreeMap::new(),
            output: OutputFormat::Text,
        },
        adapter_generation: 1,
        cwd: "/".to_owned(),
        trees: Vec::new(),
        identity: GitIdentity {
            name: "Ada (agent)".to_owned(),
            email: "ada@agents.homeostat.local".to_owned(),
        },
        silence: Duration::from_secs(900),
        roster: Vec::new(),
        mode: Mode::Chat,
        model: None,
        effort: None,
        reservation: Reservation::default(),
        guards: Vec::new(),
        revision: Revision::new("one"),
        generation: 1,
    }
}

#[tokio::test]
async fn a_run_is_told_one_thing_after_the_other() {
    let rig = Rig::new();
    let run = RunId::of(WakeId::derived(&["run"]));
    for wake in ["one", "two"] {
        let wake = WakeId::derived(&[wake]);
        rig.submit(Action::TellRun { run, wake }).await;
    }
    assert_eq!(rig.executor.in_flight().len(), 1);
    rig.landed().await;
}
