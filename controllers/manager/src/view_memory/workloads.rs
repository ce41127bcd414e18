//! Views of workloads, their budgets and autoscalers.

use super::{CONDITION, LABEL, MOST, OF_COMPONENTS, OF_REQUIREMENTS, check};
use crate::history::RevisionView;
use crate::horizontal_pod_autoscaler::AutoscalerView;
use crate::views::{
    CronJobView, DaemonSetView, DeploymentView, DisruptionBudgetView, JobView, ReplicaSetView,
    ReplicationControllerView, StatefulSetView,
};
use machinery_client::Projection;

/// Fields that every workload with a selector and a template has.
#[track_caller]
fn workload_check<P: Projection>() {
    check::<P>(
        MOST,
        &[
            (
                r#"{"metadata":{"name":"a","annotations":{@}},"spec":{"selector":{},"template":{"spec":{}}}}"#,
                LABEL,
            ),
            (
                object!(r#""spec":{"selector":{"matchLabels":{@}},"template":{"spec":{}}}"#),
                LABEL,
            ),
            (
                object!(r#""spec":{"selector":{},"template":{"metadata":{"labels":{@}},"spec":{}}}"#),
                LABEL,
            ),
            (
                object!(r#""spec":{"selector":{},"template":{"spec":{"tolerations":[@]}}}"#),
                r##"{"key":"#","operator":"Exists"}"##,
            ),
        ],
    );
    check::<P>(
        OF_REQUIREMENTS,
        &[(
            object!(r#""spec":{"selector":{"matchExpressions":[@]},"template":{"spec":{}}}"#),
            r##"{"key":"#","operator":"Exists"}"##,
        )],
    );
    check::<P>(
        OF_COMPONENTS,
        &[(
            object!(r#""spec":{"selector":{},"template":{"spec":{}}},"status":{"conditions":[@]}"#),
            CONDITION,
        )],
    );
}

#[test]
fn views_of_sets_take_what_is_charged() {
    workload_check::<ReplicaSetView>();
    workload_check::<DaemonSetView>();
}

#[test]
fn view_of_a_deployment_takes_what_is_charged() {
    workload_check::<DeploymentView>();
    check::<DeploymentView>(
        MOST,
        &[
            (
                object!(r#""spec":{"selector":{},"template":{"metadata":{"annotations":{@}},"spec":{}}}"#),
                LABEL,
            ),
            (
                object!(r#""spec":{"selector":{},"template":{"metadata":{"finalizers":[@]},"spec":{}}}"#),
                r##""a/#""##,
            ),
        ],
    );
    check::<DeploymentView>(
        OF_REQUIREMENTS,
        &[(
            object!(
                r#""spec":{"selector":{"matchExpressions":[{"key":"k","operator":"In","values":[@]}]},"template":{"spec":{}}}"#
            ),
            r##""#""##,
        )],
    );
}

#[test]
fn view_of_a_stateful_set_takes_what_is_charged() {
    workload_check::<StatefulSetView>();
    check::<StatefulSetView>(
        MOST,
        &[(
            object!(r#""spec":{"selector":{},"template":{"spec":{}},"volumeClaimTemplates":[@]}"#),
            r##"{"metadata":{"name":"#"}}"##,
        )],
    );
}

#[test]
fn view_of_an_autoscaler_takes_what_is_charged() {
    check::<AutoscalerView>(
        MOST,
        &[(
            object!(r#""spec":{"metrics":[@]}"#),
            r##"{"type":"Resource","resource":{"name":"#"}}"##,
        )],
    );
}

#[test]
fn view_of_a_replication_controller_takes_what_is_charged() {
    check::<ReplicationControllerView>(
        MOST,
        &[
            (
                object!(r#""spec":{"selector":{@},"template":{"spec":{}}}"#),
                LABEL,
            ),
            (
                object!(r#""spec":{"selector":{},"template":{"metadata":{"labels":{@}},"spec":{}}}"#),
                LABEL,
            ),
        ],
    );
}

#[test]
fn view_of_a_disruption_budget_takes_what_is_charged() {
    check::<DisruptionBudgetView>(
        MOST,
        &[
            (object!(r#""spec":{"selector":{"matchLabels":{@}}}"#), LABEL),
            (
                object!(r#""status":{"disruptedPods":{@}}"#),
                r##""#":"2026-01-01T00:00:00Z""##,
            ),
        ],
    );
    check::<DisruptionBudgetView>(
        OF_REQUIREMENTS,
        &[(
            object!(r#""spec":{"selector":{"matchExpressions":[@]}}"#),
            r##"{"key":"#","operator":"Exists"}"##,
        )],
    );
}

#[test]
fn view_of_a_job_takes_what_is_charged() {
    check::<JobView>(
        MOST,
        &[
            (
                object!(r#""spec":{"template":{"metadata":{"labels":{@}},"spec":{}}}"#),
                LABEL,
            ),
            (
                object!(r#""spec":{"selector":{"matchLabels":{@}},"template":{"spec":{}}}"#),
                LABEL,
            ),
            (
                object!(r#""spec":{"template":{"spec":{"tolerations":[@]}}}"#),
                r##"{"key":"#","operator":"Exists"}"##,
            ),
            (
                object!(
                    r#""spec":{"podFailurePolicy":{"rules":[{"action":"Ignore","onPodConditions":[@]}]},"template":{"spec":{}}}"#
                ),
                CONDITION,
            ),
            (
                object!(
                    r#""spec":{"podFailurePolicy":{"rules":[{"action":"Ignore","onExitCodes":{"operator":"In","values":[@]}}]},"template":{"spec":{}}}"#
                ),
                "1",
            ),
            (
                object!(r#""spec":{"successPolicy":{"rules":[@]},"template":{"spec":{}}}"#),
                r##"{"succeededCount":1}"##,
            ),
        ],
    );
    check::<JobView>(
        OF_REQUIREMENTS,
        &[(
            object!(r#""spec":{"selector":{"matchExpressions":[@]},"template":{"spec":{}}}"#),
            r##"{"key":"#","operator":"Exists"}"##,
        )],
    );
    check::<JobView>(
        OF_COMPONENTS,
        &[
            (
                object!(r#""spec":{"template":{"spec":{}}},"status":{"conditions":[@]}"#),
                CONDITION,
            ),
            (
                object!(
                    r#""spec":{"template":{"spec":{}}},"status":{"uncountedTerminatedPods":{"succeeded":[@]}}"#
                ),
                r##""#""##,
            ),
        ],
    );
}

#[test]
fn view_of_a_cron_job_takes_what_is_charged() {
    check::<CronJobView>(
        MOST,
        &[(
            object!(
                r#""spec":{"schedule":"","jobTemplate":{"spec":{"template":{"metadata":{"labels":{@}}}}}}"#
            ),
            LABEL,
        )],
    );
    check::<CronJobView>(
        OF_COMPONENTS,
        &[(
            object!(r#""spec":{"schedule":"","jobTemplate":{}},"status":{"active":[@]}"#),
            r##"{"uid":"#"}"##,
        )],
    );
}

#[test]
fn view_of_a_revision_takes_what_is_charged() {
    check::<RevisionView>(
        MOST,
        &[
            (r#"{"metadata":{"name":"a","labels":{@}},"revision":1}"#, LABEL),
            (object!(r#""data":{@},"revision":1"#), LABEL),
            (object!(r#""data":[@],"revision":1"#), "1"),
        ],
    );
}
