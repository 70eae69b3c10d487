//! References lead to objects, and stay within what their workspace and space allow.

use super::{Context, at};
use crate::diagnostic::{Code, did_you_mean, quote};
use crate::manifest::walk::Step;
use crate::model::kind::{Kind, ObjectRef, Placement};
use crate::model::units::Name;

impl Context<'_> {
    /// The object `kind`/`name` as seen from `from`.
    pub(super) fn target_of(from: &ObjectRef, kind: Kind, name: &Name) -> ObjectRef {
        let workspace = match kind.placement() {
            Placement::Fleet => None,
            Placement::Workspace | Placement::BySpec => from.workspace.clone(),
        };
        ObjectRef {
            kind,
            workspace,
            name: name.clone(),
        }
    }

    /// Reports that nothing declares `kind`/`name`; whether something does.
    pub(super) fn require(
        &mut self,
        from: &ObjectRef,
        path: Vec<Step>,
        kind: Kind,
        name: &Name,
    ) -> bool {
        let wanted = Self::target_of(from, kind, name);
        if self.declared.contains_key(&wanted) {
            return true;
        }
        let place = match &wanted.workspace {
            Some(workspace) => format!(" in the workspace {}", quote(workspace.as_str())),
            None => String::new(),
        };
        let message = format!("there is no {kind} {}{place}", quote(name.as_str()));
        let help = self.near(&wanted);
        let finding = self.report(Code::UnknownReference, from, path, message);
        if let Some(help) = help {
            finding.help(help);
        }
        false
    }

    /// What may have been meant by a reference that leads nowhere.
    fn near(&self, wanted: &ObjectRef) -> Option<String> {
        let of_kind = || self.declared.keys().filter(|it| it.kind == wanted.kind);
        let siblings = of_kind().filter(|it| it.workspace == wanted.workspace);
        let names = siblings.map(|it| it.name.as_str());
        if let Some(near) = did_you_mean(wanted.name.as_str(), names) {
            return Some(format!("did you mean {}?", quote(near)));
        }
        let elsewhere = of_kind().find(|it| it.name == wanted.name)?;
        let workspace = elsewhere.workspace.as_ref()?;
        let workspace = quote(workspace.as_str());
        Some(format!(
            "the workspace {workspace} has one; references stay within a workspace"
        ))
    }

    /// Reports that `agent` does not serve `space`, where both exist.
    fn require_service(&mut self, from: &ObjectRef, field: &str, agent: &Name, space: &Name) {
        let catalog = self.catalog;
        let space = Self::target_of(from, Kind::Space, space);
        let Some(resource) = catalog.spaces.get(&space) else {
            return;
        };
        if resource.spec.agents.contains(agent) {
            return;
        }
        let served = self.target(&space, at!["spec", "agents"]);
        let message = format!(
            "the agent {} does not serve the space {}",
            quote(agent.as_str()),
            quote(space.name.as_str())
        );
        self.report(Code::AgentNotInSpace, from, at!["spec", field], message)
            .label(served, "the agents that serve it")
            .help("add the agent to the space's `agents`");
    }
}

/// The workspace of every object exists.
pub(super) fn workspaces_exist(context: &mut Context<'_>) {
    let catalog = context.catalog;
    for object in catalog.index().into_keys() {
        if let Some(workspace) = object.workspace.clone() {
            let path = at!["metadata", "workspace"];
            context.require(&object, path, Kind::Workspace, &workspace);
        }
    }
}

/// Repos that a workspace lists exist in it.
pub(super) fn workspaces_list_repos(context: &mut Context<'_>) {
    let catalog = context.catalog;
    for (object, workspace) in &catalog.workspaces {
        let inside = ObjectRef {
            workspace: Some(object.name.clone()),
            ..object.clone()
        };
        for (index, repo) in workspace.spec.repos.iter().enumerate() {
            let wanted = Context::target_of(&inside, Kind::Repo, repo);
            if context.declared.contains_key(&wanted) {
                continue;
            }
            let message = format!(
                "there is no Repo {} in the workspace {}",
                quote(repo.as_str()),
                quote(object.name.as_str())
            );
            let help = context.near(&wanted);
            let path = at!["spec", "repos", index];
            let finding = context.report(Code::UnknownReference, object, path, message);
            if let Some(help) = help {
                finding.help(help);
            }
        }
    }
}

/// Agents and repos of a space exist, and its repos are its workspace's.
pub(super) fn spaces_use_what_exists(context: &mut Context<'_>) {
    let catalog = context.catalog;
    for (object, space) in &catalog.spaces {
        for (index, agent) in space.spec.agents.iter().enumerate() {
            let path = at!["spec", "agents", index];
            context.require(object, path, Kind::Agent, agent);
        }
        let workspace = object.workspace.as_ref().and_then(|name| {
            let reference = Context::target_of(object, Kind::Workspace, name);
            let resource = catalog.workspaces.get(&reference)?;
            Some((reference, &resource.spec.repos))
        });
        for (index, repo) in space.spec.repos.iter().flatten().enumerate() {
            let path = at!["spec", "repos", index];
            let exists = context.require(object, path.clone(), Kind::Repo, repo);
            let Some((workspace, listed)) = &workspace else {
                continue;
            };
            if exists && !listed.contains(repo) {
                let listed = context.target(workspace, at!["spec", "repos"]);
                let message = format!(
                    "the workspace {} does not list the repo {}",
                    quote(workspace.name.as_str()),
                    quote(repo.as_str())
                );
                context
                    .report(Code::RepoNotInWorkspace, object, path, message)
                    .label(listed, "the repos of the workspace")
                    .help("add the repo to the workspace's `repos`");
            }
        }
    }
}

/// Adapters of agents exist. (Their budget policies: [`super::budget`].)
pub(super) fn agents_use_what_exists(context: &mut Context<'_>) {
    let catalog = context.catalog;
    for (object, agent) in &catalog.agents {
        let path = at!["spec", "adapter"];
        context.require(object, path, Kind::Adapter, &agent.spec.adapter);
    }
}

/// Agents, spaces and tickets that work names exist, and the agent serves the space.
pub(super) fn work_goes_to_agents_of_its_space(context: &mut Context<'_>) {
    let catalog = context.catalog;
    for (object, ticket) in &catalog.tickets {
        let spec = &ticket.spec;
        context.require(object, at!["spec", "space"], Kind::Space, &spec.space);
        if let Some(agent) = &spec.assignee
            && context.require(object, at!["spec", "assignee"], Kind::Agent, agent)
        {
            context.require_service(object, "assignee", agent, &spec.space);
        }
    }
    for (object, dispatch) in &catalog.dispatches {
        let spec = &dispatch.spec;
        context.require(object, at!["spec", "space"], Kind::Space, &spec.space);
        if context.require(object, at!["spec", "agent"], Kind::Agent, &spec.agent) {
            context.require_service(object, "agent", &spec.agent, &spec.space);
        }
        if let Some(ticket) = &spec.ticket {
            context.require(object, at!["spec", "ticket"], Kind::Ticket, ticket);
        }
    }
    for (object, schedule) in &catalog.schedules {
        let spec = &schedule.spec;
        context.require(object, at!["spec", "space"], Kind::Space, &spec.space);
        if context.require(object, at!["spec", "agent"], Kind::Agent, &spec.agent) {
            context.require_service(object, "agent", &spec.agent, &spec.space);
        }
    }
}

/// Where a mode owes something, every agent of the space can hand it in.
pub(super) fn modes_can_be_met(context: &mut Context<'_>) {
    let catalog = context.catalog;
    for (object, space) in &catalog.spaces {
        let Some(verb) = space.spec.mode.contract() else {
            continue;
        };
        for (index, name) in space.spec.agents.iter().enumerate() {
            let agent = Context::target_of(object, Kind::Agent, name);
            let Some(agent) = catalog.agents.get(&agent) else {
                continue;
            };
            let adapter = Context::target_of(object, Kind::Adapter, &agent.spec.adapter);
            let Some(resource) = catalog.adapters.get(&adapter) else {
                continue;
            };
            let kind = resource.spec.r#type;
            if kind.observes_contract() {
                continue;
            }
            let message = format!(
                "the agent {} can't call {}, which `mode: {}` asks for",
                quote(name.as_str()),
                quote(&verb.to_string()),
                space.spec.mode
            );
            let place = context.target(&adapter, at!["spec", "type"]);
            context
                .report(
                    Code::ModeUnmet,
                    object,
                    at!["spec", "agents", index],
                    message,
                )
                .label(place, "its adapter, which can't be given tools")
                .help("give the agent an adapter of type `claudeCode`, or the space another mode");
        }
    }
}
