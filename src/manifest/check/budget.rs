//! Budgets are over something that they can be over.

use super::{Context, at};
use crate::diagnostic::{Code, quote};
use crate::model::kind::{Kind, ObjectRef};
use crate::model::spec::{BudgetPolicySpec, BudgetScopeKind};

/// A policy over the fleet names nothing; any other names an object of its own workspace. The
/// policy that an agent names is one over that agent.
pub(super) fn scopes_fit(context: &mut Context<'_>) {
    let catalog = context.catalog;
    for (object, policy) in &catalog.budget_policies {
        if policy.spec.ceilings().next().is_none() {
            let message = "the field `monthly` in `spec` is missing".to_owned();
            context
                .report(Code::MissingField, object, at!["spec", "monthly"], message)
                .help("a BudgetPolicy has a ceiling: `monthly` in money, `tokens`, or both");
        }
        match policy.spec.scope.kind {
            BudgetScopeKind::Fleet => over_fleet(context, object, &policy.spec),
            BudgetScopeKind::Agent => over_object(context, object, &policy.spec, Kind::Agent),
            BudgetScopeKind::Space => over_object(context, object, &policy.spec, Kind::Space),
            BudgetScopeKind::Repo => over_object(context, object, &policy.spec, Kind::Repo),
            BudgetScopeKind::Workspace => {
                over_object(context, object, &policy.spec, Kind::Workspace);
            }
        }
    }
    for (object, agent) in &catalog.agents {
        let Some(name) = &agent.spec.budget_policy else {
            continue;
        };
        let path = at!["spec", "budgetPolicy"];
        if !context.require(object, path.clone(), Kind::BudgetPolicy, name) {
            continue;
        }
        let policy = Context::target_of(object, Kind::BudgetPolicy, name);
        let Some(resource) = catalog.budget_policies.get(&policy) else {
            continue;
        };
        let scope = &resource.spec.scope;
        if scope.kind != BudgetScopeKind::Agent || scope.name.as_ref() != Some(&object.name) {
            let scope = context.target(&policy, at!["spec", "scope"]);
            let message = format!(
                "the policy {} is not over the agent {}",
                quote(name.as_str()),
                quote(object.name.as_str())
            );
            context
                .report(Code::BadBudgetScope, object, path, message)
                .label(scope, "what it is over");
        }
    }
}

fn over_fleet(context: &mut Context<'_>, object: &ObjectRef, spec: &BudgetPolicySpec) {
    if object.workspace.is_some() {
        let message = "a budget over the fleet belongs to no workspace".to_owned();
        let path = at!["metadata", "workspace"];
        context
            .report(Code::WorkspaceNotAllowed, object, path, message)
            .help("remove `workspace`");
    }
    if spec.scope.name.is_some() {
        let message = "the scope fleet has no name: there is one".to_owned();
        let path = at!["spec", "scope", "name"];
        context
            .report(Code::BadBudgetScope, object, path, message)
            .help("remove `name`");
    }
}

fn over_object(context: &mut Context<'_>, object: &ObjectRef, spec: &BudgetPolicySpec, kind: Kind) {
    let Some(workspace) = &object.workspace else {
        let message = format!("a budget over one {kind} belongs to a workspace, and none is named");
        context
            .report(Code::WorkspaceMissing, object, at!["metadata"], message)
            .at_key()
            .help("add `workspace`");
        return;
    };
    let Some(name) = &spec.scope.name else {
        let message = format!("the scope does not say which {kind}");
        context
            .report(Code::BadBudgetScope, object, at!["spec", "scope"], message)
            .help("add `name`");
        return;
    };
    let path = at!["spec", "scope", "name"];
    if kind == Kind::Workspace && name != workspace {
        let message = format!(
            "the policy belongs to the workspace {}, not to {}",
            quote(workspace.as_str()),
            quote(name.as_str())
        );
        context
            .report(Code::BadBudgetScope, object, path, message)
            .help("put the policy into the workspace that it is over");
    } else if kind != Kind::Workspace {
        context.require(object, path, kind, name);
    }
}
