//! Runs scenarios on one cluster and takes it down, for test binaries whose tests share something.

use super::cluster::Cluster;
use libtest_mimic::{Arguments, Completion, Failed, Trial};
use std::process::ExitCode;

/// Name and function of a scenario.
pub(crate) type Scenario = (&'static str, fn(&Cluster));

/// Scenarios at a time, unless `--test-threads` says otherwise: they mostly wait.
pub(crate) enum Pace {
    Together,
    OneByOne,
}

/// Runs what the arguments select, all on one cluster; what is left of that afterwards is a failure of its own.
pub(crate) fn run(name: &'static str, scenarios: &[Scenario], pace: Pace) -> ExitCode {
    run_with(name, &[], scenarios, pace)
}

/// The same on a cluster with further flags.
pub(crate) fn run_with(name: &'static str, flags: &[String], scenarios: &[Scenario], pace: Pace) -> ExitCode {
    let mut arguments = Arguments::from_args();
    let limit = match pace {
        Pace::Together => 8,
        Pace::OneByOne => 1,
    };
    arguments.test_threads.get_or_insert(limit);
    let nothing_to_run = arguments.list || !(arguments.ignored || arguments.include_ignored);
    // Every scenario of the process uses it, to the end.
    let cluster: Option<&'static Cluster> = match nothing_to_run {
        true => None,
        false => Cluster::start_with(name, flags).map(|cluster| &*Box::leak(Box::new(cluster))),
    };
    let trial = |(scenario, run): &Scenario| {
        let (scenario, run) = (*scenario, *run);
        Trial::ignorable_test(scenario, move || run_scenario(name, scenario, run, cluster))
            .with_ignored_flag(true)
    };
    let conclusion = libtest_mimic::run(&arguments, scenarios.iter().map(trial).collect());
    let removed = cluster.map(Cluster::remove);
    if let Some(Err(left)) = removed {
        println!("the cluster was not taken down: {left}");
        return ExitCode::FAILURE;
    }
    conclusion.exit_code()
}

fn run_scenario(
    name: &str,
    scenario: &str,
    run: fn(&Cluster),
    cluster: Option<&Cluster>,
) -> Result<Completion, Failed> {
    let Some(cluster) = cluster else {
        return Ok(Completion::ignored_with("this machine cannot run it"));
    };
    let began = std::time::Instant::now();
    run(cluster);
    println!("{name}::{scenario}: {:.1} s", began.elapsed().as_secs_f64());
    Ok(Completion::Completed)
}
