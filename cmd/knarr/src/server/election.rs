//! The flags of leader election; names and defaults are upstream's.

use super::controllers::duration;
use anyhow::{Context, bail};
use clap::Args;
use cluster::LeaderElection;
use machinery_runtime::Runtime;
use std::time::Duration;

/// See the module. One server runs controllers and scheduler, so one set of flags is for both.
#[derive(Debug, Args)]
pub(crate) struct ElectionArguments {
    /// Run controllers and scheduler only while leading; on by default with --etcd-servers, where several servers may share them
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    leader_elect: Option<bool>,
    /// The duration that non-leader candidates wait after they saw the lease renewed until they try to acquire it
    #[arg(long, value_parser = duration, default_value = "15s")]
    leader_elect_lease_duration: Duration,
    /// The time after which a leader that could not renew its lease stops leading; less than the lease duration
    #[arg(long, value_parser = duration, default_value = "10s")]
    leader_elect_renew_deadline: Duration,
    /// The time between attempts to acquire and to renew
    #[arg(long, value_parser = duration, default_value = "2s")]
    leader_elect_retry_period: Duration,
    /// The name of the controllers' lease
    #[arg(long, default_value = "kube-controller-manager")]
    leader_elect_resource_name: String,
    /// The name of the scheduler's lease
    #[arg(long, default_value = "kube-scheduler")]
    scheduler_leader_elect_resource_name: String,
    /// The namespace of both leases
    #[arg(long, default_value = "kube-system")]
    leader_elect_resource_namespace: String,
}

impl ElectionArguments {
    /// Checks that the durations together keep two leaders apart.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        let settings = self.settings("");
        for config in [&settings.controllers, &settings.scheduler] {
            if let Some(problem) = config.problems().first() {
                bail!("--leader-elect-*: {problem}");
            }
        }
        if settings.controllers.resource_name == settings.scheduler.resource_name {
            bail!("--leader-elect-resource-name and --scheduler-leader-elect-resource-name are the same");
        }
        Ok(())
    }

    fn settings(&self, identity: &str) -> LeaderElection {
        let mut election = LeaderElection::new(identity);
        election
            .controllers
            .resource_name
            .clone_from(&self.leader_elect_resource_name);
        election
            .scheduler
            .resource_name
            .clone_from(&self.scheduler_leader_elect_resource_name);
        for config in [&mut election.controllers, &mut election.scheduler] {
            config.lease_duration = self.leader_elect_lease_duration;
            config.renew_deadline = self.leader_elect_renew_deadline;
            config.retry_period = self.leader_elect_retry_period;
            config
                .resource_namespace
                .clone_from(&self.leader_elect_resource_namespace);
        }
        election
    }

    /// This server as a candidate, where there are elections: with a store that others may share, unless a flag says otherwise.
    pub(crate) fn candidate(
        &self,
        shared: bool,
        runtime: &Runtime,
    ) -> anyhow::Result<Option<LeaderElection>> {
        if !self.leader_elect.unwrap_or(shared) {
            return Ok(None);
        }
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").context("reading the host name")?;
        let identity = format!("{}_{}", host.trim(), runtime.uuid());
        Ok(Some(self.settings(&identity)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        election: ElectionArguments,
    }

    fn parse(flags: &[&str]) -> ElectionArguments {
        Line::try_parse_from([&["knarr"], flags].concat())
            .unwrap()
            .election
    }

    #[tokio::test]
    async fn leader_election_is_on_where_several_servers_may_be() {
        let runtime = Runtime::real();
        for (flags, shared, elects) in [
            (&[][..], true, true),
            (&[], false, false),
            (&["--leader-elect"], false, true),
            (&["--leader-elect=false"], true, false),
        ] {
            let candidate = parse(flags).candidate(shared, &runtime).unwrap();
            assert_eq!(candidate.is_some(), elects, "{flags:?} {shared}");
        }
    }

    #[test]
    fn leader_election_flags_that_could_have_two_leaders_are_refused() {
        parse(&[]).check().unwrap();
        for flags in [
            &["--leader-elect-renew-deadline=15s"][..],
            &["--leader-elect-retry-period=9s"],
            &["--leader-elect-lease-duration=1s"],
            &["--leader-elect-resource-name=kube-scheduler"],
            &["--leader-elect-resource-name="],
        ] {
            assert!(parse(flags).check().is_err(), "{flags:?}");
        }
    }
}
