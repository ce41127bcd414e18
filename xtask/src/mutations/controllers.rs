//! Lines of controllers, of what they share, and of their leader election, each of which the scenario of the whole cluster
//! guards (`cluster/tests/simulation/whole`).

use super::{Mutation, Suite};

const WHOLE: &[&str] = &["--test", "simulation", "whole_cluster_scenario"];

pub(super) const SUITES: &[Suite] = &[
    Suite {
        package: "cluster",
        folder: "controllers/manager/src",
        mutations: &[
            Mutation {
                name: "whole: a set does not wait for what it did",
                file: "replica_set/plan.rs",
                from: "if snapshot.settled && !snapshot.set.header.is_deleting() {",
                to: "if !snapshot.set.header.is_deleting() {",
                proof: WHOLE,
            },
            Mutation {
                name: "whole: a set makes one pod more",
                file: "replica_set/plan.rs",
                from: "plan.create = (wanted - have).min(BURST_REPLICAS);",
                to: "plan.create = (wanted - have + 1).min(BURST_REPLICAS);",
                proof: WHOLE,
            },
            Mutation {
                name: "whole: a rolling update surges by one more",
                file: "deployment/rolling.rs",
                from: ".saturating_add(rolling.max_surge)",
                to: ".saturating_add(rolling.max_surge + 1)",
                proof: WHOLE,
            },
            Mutation {
                name: "whole: an end on the list is counted again",
                file: "job/tracking.rs",
                from: "let counted = listed.contains(pod.uid().0.as_str());",
                to: "let counted = listed.contains(pod.uid().0.as_str()) && false;",
                proof: WHOLE,
            },
            Mutation {
                name: "whole: pods that a Job has too many of count as failed",
                file: "job/reconcile.rs",
                from: "        if has_finalizer(pod) {\n            self.release(pod).await?;",
                to: "        if false {\n            self.release(pod).await?;",
                proof: WHOLE,
            },
            Mutation {
                name: "whole: pods of a deleted Job keep their finalizer",
                file: "job/reconcile.rs",
                from: "if has_job(&pod, &self.jobs) {",
                to: "if has_job(&pod, &self.jobs) || true {",
                proof: WHOLE,
            },
            Mutation {
                name: "whole: a Job does not wait for what it did",
                file: "job/plan.rs",
                from: "plan.requeue_at = deadline(snapshot);\n    if !snapshot.settled {",
                to: "plan.requeue_at = deadline(snapshot);\n    if false {",
                proof: WHOLE,
            },
            Mutation {
                name: "whole: a pod leaves at once though it tolerates for a while",
                file: "node_lifecycle/pending.rs",
                from: "let at = since.saturating_add(granted);",
                to: "let at = since;",
                proof: WHOLE,
            },
            Mutation {
                name: "whole: a pod never leaves a node that is lost",
                file: "node_lifecycle/pending.rs",
                from: "Some(left) if !left.is_zero() => Next::Wait(left),",
                to: "Some(left) if !left.is_zero() => Next::Wait(left + granted),",
                proof: WHOLE,
            },
            Mutation {
                name: "whole: a node gets two daemons",
                file: "daemon_set/plan.rs",
                from: "None if eligible.should_run => changes.create.push(node.clone()),",
                to: "None if eligible.should_run => changes.create.extend([node.clone(), node.clone()]),",
                proof: WHOLE,
            },
            Mutation {
                name: "whole: pods of nodes that are gone stay",
                file: "pod_gc/mod.rs",
                from: "Err(error) if error.is_not_found() => self.orphan(&pod).await,",
                to: "Err(error) if error.is_not_found() => Ok(Outcome::Done),",
                proof: WHOLE,
            },
            Mutation {
                name: "whole: a finished Job is not one too many",
                file: "cron_job/plan.rs",
                from: "own.truncate(own.len().saturating_sub(keep));",
                to: "own.truncate(own.len().saturating_sub(keep + 1));",
                proof: WHOLE,
            },
            Mutation {
                name: "whole: dependents outlive their owner",
                file: "garbage_collector/reconcile.rs",
                from: "if live.header.owners.is_empty() || live.header.is_deleting() {",
                to: "if !live.header.owners.is_empty() {",
                proof: WHOLE,
            },
        ],
    },
    Suite {
        package: "cluster",
        folder: "",
        mutations: &[
            Mutation {
                name: "whole: a relist forgets what is gone",
                file: "machinery/client/src/informer/shared.rs",
                from: "for key in &gone {",
                to: "for key in gone.iter().skip(1) {",
                proof: WHOLE,
            },
            Mutation {
                name: "whole: a creation without an answer was refused",
                file: "machinery/reconcile/src/expectations.rs",
                from: "|| !pending.deletions.is_empty();\n            awaited.unacknowledged = lost(&pending.creations);",
                to: "|| !pending.deletions.is_empty();\n            pending.creations.retain(|_, own| own.is_some());",
                proof: WHOLE,
            },
            Mutation {
                name: "whole: one who leads no more still writes",
                file: "cluster/src/fence.rs",
                from: "if request.method() != Method::GET && !self.leadership.holds() {",
                to: "if false && !self.leadership.holds() {",
                proof: WHOLE,
            },
        ],
    },
];
