//! The loop turned by hand, in a process of the test's own: with what a manifest may not ask for, such
//! as a silence that is short enough for a test.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use homeostat::clock::{Clock, RandomIds, SystemClock};
use homeostat::dispatch::{RunSettings, Runs};
use homeostat::execute::{self, Executor};
use homeostat::gateway::{self, Timeouts};
use homeostat::manifest::{self, ManifestFile};
use homeostat::model::action::Action;
use homeostat::model::desired::Catalog;
use homeostat::model::kind::Revision;
use homeostat::model::observed::WorktreeBackend;
use homeostat::model::worktree::UserIds;
use homeostat::plan::{PlanInput, plan};
use homeostat::price::PriceTable;
use homeostat::process::deadline::Deadline;
use homeostat::sandbox::{self, RunIdentity};
use homeostat::store::{Accept, FirstObjects, RunFilter, RunView, Store};
use homeostat::task::Tracker;
use homeostat::worktree::layout::Layout;
use tempfile::TempDir;

use super::rig::LONG;

/// What is not as a daemon has it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Short {
    pub(super) silence: Option<Duration>,
    pub(super) timeouts: Option<Timeouts>,
}

/// Turns the loop over `fleet` until its one run is over; it, and what it said.
pub(super) fn turn(fleet: &str, short: Short) -> (RunView, String) {
    let directory = TempDir::new().unwrap();
    fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(turn_in(directory.path(), fleet, short))
}

async fn turn_in(data: &Path, fleet: &str, short: Short) -> (RunView, String) {
    let store = Store::open(&data.join("homeostat.db")).unwrap();
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let catalog = accept(&store, clock.as_ref(), fleet).await;
    let executor = executor(data, &store, &clock, short.timeouts.unwrap_or_default());
    let deadline = Deadline::after(LONG);
    loop {
        assert!(!deadline.passed(), "the run does not end");
        let runs = store
            .runs(RunFilter {
                limit: 1,
                ..RunFilter::default()
            })
            .await
            .unwrap();
        if let Some(run) = runs.into_iter().find(|run| run.ended_at.is_some()) {
            let events = store.events_after(run.id, None, 100).await.unwrap();
            let events = events
                .into_iter()
                .map(|it| serde_json::to_string(&it.event).unwrap());
            return (run, events.collect());
        }
        let now = clock.now();
        let attached = executor.runs().attached();
        let mut observed = store.observe(now).await.unwrap();
        observed.backend = Some(WorktreeBackend::Git);
        for (id, run) in &mut observed.live_runs {
            run.is_attached = attached.contains(id);
        }
        let input = PlanInput {
            catalog: &catalog,
            observed: &observed,
            now,
        };
        for mut action in plan(&input).actions {
            if let (Action::StartRun(order), Some(silence)) = (&mut action, short.silence) {
                order.silence = silence;
            }
            executor.submit(action, 0).await.unwrap();
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn accept(store: &Store, clock: &dyn Clock, fleet: &str) -> Catalog {
    let loaded = manifest::load(&[ManifestFile {
        path: "fleet.yaml".to_owned(),
        bytes: fleet.into(),
    }]);
    assert!(loaded.is_valid(), "{:?}", loaded.diagnostics);
    let accept = Accept {
        revision: Revision::new("one"),
        documents: loaded.documents,
        author: None,
        committed_at: None,
        first_revision: FirstObjects::Run,
        now: clock.now(),
    };
    // Processes are found by the id of their run, which follows from these.
    store.accept(accept, Arc::new(RandomIds)).await.unwrap();
    loaded.catalog
}

fn executor(data: &Path, store: &Store, clock: &Arc<dyn Clock>, timeouts: Timeouts) -> Executor {
    let layout = Layout::new(data);
    layout.ensure().unwrap();
    let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
    let identity = RunIdentity::resolve(uid.as_raw(), gid.as_raw(), None).unwrap();
    let layers = sandbox::probe(identity);
    let tracker = Tracker::new();
    let settings = RunSettings {
        program: PathBuf::from(env!("CARGO_BIN_EXE_homeostat")),
        data_dir: data.to_owned(),
        layout: layout.clone(),
        path: "/usr/bin:/bin".to_owned(),
        variables: BTreeMap::new(),
        models: gateway::Client::new(&tracker).unwrap(),
        timeouts,
        prices: Arc::new(PriceTable::embedded(&[])),
        identity,
        sandbox: layers.state(),
        layers,
        backend: WorktreeBackend::Git,
        incarnation: "test".to_owned(),
        grace: Duration::from_millis(200),
    };
    let on_change: homeostat::dispatch::OnChange = Arc::new(|_reason| {});
    let runs = Runs::new(
        store.clone(),
        Arc::clone(clock),
        tracker.clone(),
        settings,
        Arc::clone(&on_change),
    );
    let settings = execute::Settings {
        layout,
        backend: WorktreeBackend::Git,
        user: UserIds {
            uid: identity.uid(),
            gid: identity.gid(),
        },
        source_base: Some(data.to_owned()),
    };
    Executor::new(
        settings,
        store.clone(),
        runs,
        Arc::clone(clock),
        tracker,
        on_change,
    )
}
