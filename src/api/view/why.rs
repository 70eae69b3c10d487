//! Why something is as it is: the receipt in a sentence, and what it stands on.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::name::one;
use super::object::{self, hold, object_holds};
use super::run::{run_to_come, shown};
use crate::api::dto::{Hold, Object, Run, Wake, Why};
use crate::api::problem::Failure;
use crate::model::action::HoldSubject;
use crate::model::condition::{ConditionStatus, ConditionType};
use crate::model::id::{RunId, Uid, WakeId};
use crate::model::kind::{Kind, ObjectRef};
use crate::model::observed::Observed;
use crate::model::wake::{self, WakeState};
use crate::store::{ObjectView, Store, StoreError};

/// Why `subject` (`KIND/NAME`, or a wake's or run's id or the beginning of one) is as it is.
///
/// # Errors
/// When there is no such thing, or more than one.
pub async fn why(store: &Store, subject: &str, now: Timestamp) -> Result<Why, Failure> {
    let world = World::read(store, now).await?;
    if let Some((kind, name)) = subject.split_once('/') {
        let kind = Kind::from_argument(kind)
            .ok_or_else(|| Failure::bad_request(format!("'{kind}' is no kind")))?;
        let view = one(store.objects(Some(kind)).await?, kind, name)?;
        return Ok(world.of_object(view));
    }
    if let Some(run) = store.run(subject).await? {
        return world.of_run(store, shown(run)).await;
    }
    if let Some(queued) = run_to_come(&world.observed.wakes, subject) {
        return Ok(world.of_waiting(&queued.wake));
    }
    world.of_wake(store, subject).await
}

/// Everything of one instant that answers stand on.
struct World {
    observed: Observed,
    object_holds: BTreeMap<ObjectRef, Hold>,
    wake_holds: BTreeMap<WakeId, Hold>,
    names: BTreeMap<Uid, ObjectRef>,
}

impl World {
    async fn read(store: &Store, now: Timestamp) -> Result<Self, StoreError> {
        let observed = store.observe(now).await?;
        let holds = store.holds().await?;
        let wake_holds = holds
            .iter()
            .filter_map(|stored| match stored.subject {
                HoldSubject::Wake(wake) => Some((wake, hold(stored.clone()))),
                HoldSubject::Object(_) => None,
            })
            .collect();
        let names = observed.objects.iter();
        Ok(Self {
            names: names
                .map(|(name, state)| (state.uid, name.clone()))
                .collect(),
            object_holds: object_holds(holds),
            wake_holds,
            observed,
        })
    }

    fn of_object(&self, view: ObjectView) -> Why {
        let uid = view.state.uid;
        let hold = self.object_holds.get(&view.reference).cloned();
        let object = object::shown(view, hold, &self.observed.tickets);
        let about = |wake: &wake::Wake| {
            let subjects = [Some(wake.agent), Some(wake.space), wake.ticket, wake.cause];
            subjects.contains(&Some(uid))
        };
        let waiting = self
            .observed
            .wakes
            .iter()
            .filter(|queued| about(&queued.wake));
        let wakes: Vec<Wake> = waiting
            .map(|queued| self.wake(&queued.wake, WakeState::Pending))
            .collect();
        Why {
            subject: object.reference(),
            answer: answer_of_object(&object, &wakes),
            object: Some(object),
            run: None,
            wakes,
        }
    }

    async fn of_run(&self, store: &Store, run: Run) -> Result<Why, Failure> {
        let record = store.wake(run.wake).await?;
        let wakes = record.map(|it| self.wake(&it.wake, it.state));
        Ok(Why {
            subject: format!("run {}", run.id),
            answer: answer_of_run(&run),
            object: None,
            wakes: wakes.into_iter().collect(),
            run: Some(Box::new(run)),
        })
    }

    fn of_waiting(&self, wake: &wake::Wake) -> Why {
        let wake = self.wake(wake, WakeState::Pending);
        Why {
            subject: format!("run {}, which has not started", wake.run_id),
            answer: answer_of_wake(&wake),
            object: None,
            run: None,
            wakes: vec![wake],
        }
    }

    async fn of_wake(&self, store: &Store, id: &str) -> Result<Why, Failure> {
        let waiting = self.observed.wakes.iter().map(|queued| queued.wake.id);
        let mut meant: Vec<WakeId> = waiting
            .filter(|wake| !id.is_empty() && wake.to_string().starts_with(&id.to_ascii_lowercase()))
            .collect();
        if meant.is_empty() {
            meant.extend(id.parse::<WakeId>().ok());
        }
        if meant.len() > 1 {
            return Err(Failure::ambiguous(format!(
                "'{id}' names more than one wake"
            )));
        }
        let record = match meant.pop() {
            Some(wake) => store.wake(wake).await?,
            None => None,
        };
        let record = record.ok_or_else(|| {
            Failure::not_found(format!("there is no object, run or wake '{id}'"))
                .detail("objects are named KIND/NAME, or KIND/WORKSPACE/NAME")
        })?;
        if let Some(run) = record.run {
            let run = store.run(&run.to_string()).await?;
            if let Some(run) = run {
                return self.of_run(store, shown(run)).await;
            }
        }
        let wake = self.wake(&record.wake, record.state);
        Ok(Why {
            subject: format!("wake {}", wake.id),
            answer: match record.because {
                Some(because) => format!("it was dropped: {because}"),
                None => answer_of_wake(&wake),
            },
            object: None,
            run: None,
            wakes: vec![wake],
        })
    }

    fn wake(&self, wake: &wake::Wake, state: WakeState) -> Wake {
        Wake {
            id: wake.id,
            reason: wake.reason,
            state,
            agent: self.name(wake.agent),
            space: self.name(wake.space),
            run_id: RunId::of(wake.id),
            created_at: wake.created_at,
            hold: self.wake_holds.get(&wake.id).cloned(),
        }
    }

    fn name(&self, uid: Uid) -> String {
        self.names
            .get(&uid)
            .map_or_else(|| uid.to_string(), ToString::to_string)
    }
}

/// The strongest reason: removal, a hold, a condition that is not as it should be, readiness.
fn answer_of_object(object: &Object, wakes: &[Wake]) -> String {
    if let Some(hold) = &object.hold {
        return format!("it is held, {}: {}", hold.reason, hold.message);
    }
    let says = |kind, status| {
        let condition = object.condition(kind);
        condition.filter(|it| it.status == status)
    };
    let troubled = [
        (ConditionType::Stalled, ConditionStatus::True),
        (ConditionType::Paused, ConditionStatus::True),
        (ConditionType::BudgetOk, ConditionStatus::False),
        (ConditionType::Provisioned, ConditionStatus::False),
        (ConditionType::Ready, ConditionStatus::False),
        (ConditionType::Reconciling, ConditionStatus::True),
    ];
    if let Some(condition) = troubled
        .iter()
        .find_map(|(kind, status)| says(*kind, *status))
    {
        return format!("{}: {}", condition.reason, condition.message);
    }
    if object.deletion_requested_at.is_some() {
        return "no revision declares it any more; it is being removed".to_owned();
    }
    if let Some(hold) = wakes.iter().find_map(|wake| wake.hold.as_ref()) {
        return format!("a wake of it is held, {}: {}", hold.reason, hold.message);
    }
    match object.condition(ConditionType::Ready) {
        Some(ready) => format!("{}: {}", ready.reason, ready.message),
        None => "nothing was said about it yet".to_owned(),
    }
}

fn answer_of_wake(wake: &Wake) -> String {
    match (&wake.hold, wake.state) {
        (Some(hold), _) => format!("it is held, {}: {}", hold.reason, hold.message),
        (None, WakeState::Pending) => "it waits for the next pass".to_owned(),
        (None, WakeState::Claimed) => "a run serves it".to_owned(),
        (None, WakeState::Finished) => "its run closed".to_owned(),
        (None, WakeState::Cancelled) => "it was dropped".to_owned(),
    }
}

fn answer_of_run(run: &Run) -> String {
    let answer = match (run.ended_at, run.end_reason) {
        (Some(_), Some(reason)) => {
            let liveness = run.liveness.map(|it| format!(", {it}")).unwrap_or_default();
            format!("it ended as {}{liveness}: {reason}", run.status)
        }
        (Some(_), None) => format!("it ended as {}", run.status),
        (None, _) => match run.stop_requested {
            Some(reason) => format!("it is being stopped: {reason}"),
            None => format!("it is {}", run.status),
        },
    };
    let family = run.error_family.map(|it| format!(" ({it})"));
    let summary = run.summary.as_ref().filter(|it| !it.is_empty());
    let summary = summary.map(|it| format!("; {it}"));
    [Some(answer), family, summary]
        .into_iter()
        .flatten()
        .collect()
}
