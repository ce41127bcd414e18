//! `cargo xtask test`: installs what is missing and runs all tests. `.ci/run` calls it.
//!
//! Three layers: every crate's own tests; tests that need root, by name; a cluster with real containers.
//! Missing prerequisites are printed by name and not counted as passed.

use crate::config::Config;
use crate::steps::{cargo, step};
use crate::{packages, process, tools, up_and_down};
use anyhow::Result;
use std::time::Duration;

/// Test binaries whose tests are marked `needs root`.
/// `node`, `outages`, `pressure`, `shutdown` and `systemd` run clusters with real containers.
const NEED_ROOT: [&str; 14] = [
    "mounts",
    "links",
    "full_disk",
    "vanished_peers",
    "traffic",
    "likeness",
    "node",
    "outages",
    "pressure",
    "shutdown",
    "systemd",
    "slices",
    "logind",
    "joining",
];

/// Upstream's programs that tests request by `tool_or_skip`.
const TOOLS: [&str; 6] = [
    "etcd",
    "envtest",
    "etcdutl",
    "kubectl",
    "kube-apiserver",
    "sample-apiserver",
];

/// No test and no compilation takes this long on two cores; one that hangs would take the time of all others.
const SILENCE: Duration = Duration::from_secs(15 * 60);

/// Layers to run; all by default.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct Arguments {
    /// Only the crates' own tests: no root, no upstream tools, no containers.
    #[arg(long)]
    pub unit: bool,
    /// Only up, up again, and down, with the debug binary as it was built last.
    #[arg(long, conflicts_with = "unit")]
    pub up_and_down: bool,
}

pub(crate) fn run(config: &Config, arguments: &Arguments) -> Result<()> {
    packages::ensure(packages::BUILD)?;
    if arguments.unit {
        return cargo(config, &["test", "--quiet", "--workspace"]);
    }
    packages::ensure(packages::NODE)?;
    if arguments.up_and_down {
        return up_and_down::run(config);
    }
    packages::ensure(packages::TEST)?;
    step("upstream's tools");
    tools::ensure(config, &TOOLS)?;
    step("tests of every crate");
    cargo_test(config, &[])?;
    step("upstream's fixtures");
    let folder = tools::module(config, "k8s.io/api")?.join("testdata/HEAD");
    let mut fixtures = process::cargo(&config.root);
    fixtures.env("KNARR_API_TESTDATA", folder);
    fixtures.args([
        "test",
        "--workspace",
        "--test",
        "upstream_fixtures",
        "--",
        "--ignored",
    ]);
    process::run(&mut fixtures)?;
    if packages::is_root()? {
        step("tests that need root");
        let mut outcomes: Vec<Result<()>> = NEED_ROOT
            .iter()
            .map(|test| cargo_test(config, &["--test", test, "--", "--ignored"]))
            .collect();
        step("up, up again, and down");
        outcomes.push(up_and_down::run(config));
        // One that fails does not keep the others from being seen.
        outcomes.into_iter().collect::<Result<()>>()?;
    } else {
        for test in NEED_ROOT {
            println!("SKIPPED, not passed: {test}, since this is not root");
        }
        println!("SKIPPED, not passed: up and down, since this is not root");
    }
    Ok(())
}

/// Tests of the whole workspace, since one package alone resolves other features and builds its dependencies again; informed
/// where upstream's tools are, so that what needs them fails where they are not.
fn cargo_test(config: &Config, arguments: &[&str]) -> Result<()> {
    let mut tests = process::cargo(&config.root);
    tests.env("KNARR_TOOLS", &config.tools);
    let tests = tests
        .args(["test", "--workspace", "--no-fail-fast"])
        .args(arguments);
    process::run_watched(tests, SILENCE)
}

#[cfg(test)]
mod tests {
    use super::TOOLS;
    use std::collections::BTreeSet;
    use std::path::{Path, PathBuf};

    fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() && !path.ends_with("target") {
                sources(&path, found);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(path);
            }
        }
    }

    /// A test that requests another program would fail on a clean machine alone.
    #[test]
    fn tools_that_tests_ask_for_are_built() {
        let mut files = Vec::new();
        sources(
            &Path::new(env!("CARGO_MANIFEST_DIR")).join("../cmd/knarr/tests"),
            &mut files,
        );
        let mut asked = BTreeSet::new();
        for file in files {
            let text = std::fs::read_to_string(&file).expect("a source");
            let calls = text.split("tool_or_skip(").skip(1);
            let arguments =
                calls.filter_map(|call| call.split(')').next()?.split('"').rev().nth(1).map(str::to_owned));
            asked.extend(arguments);
        }
        assert_eq!(asked, TOOLS.map(str::to_owned).into());
    }
}
