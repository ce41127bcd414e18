//! `cargo xtask test`: installs what is missing and runs all tests. `.ci/run` calls it.
//!
//! Three layers: every crate's own tests; tests that need root, by name; a cluster with real containers.
//! What this machine lacks is said by name and not counted as passed.

use crate::ci::{cargo, step};
use crate::config::Config;
use crate::{packages, process, tools, up_and_down};
use anyhow::Result;

/// Test binaries whose tests are marked `needs root`.
/// `node` and `outages` run clusters with real containers.
const NEED_ROOT: [&str; 7] = [
    "mounts",
    "links",
    "full_disk",
    "traffic",
    "likeness",
    "node",
    "outages",
];

/// Which layers to run; all by default.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct Arguments {
    /// Only the crates' own tests: no root, no upstream tools, no containers.
    #[arg(long)]
    pub unit: bool,
}

pub(crate) fn run(config: &Config, arguments: &Arguments) -> Result<()> {
    packages::ensure(packages::BUILD)?;
    if arguments.unit {
        return cargo(config, &["test", "--quiet", "--workspace"]);
    }
    packages::ensure(packages::NODE)?;
    packages::ensure(packages::TEST)?;
    step("upstream's tools");
    tools::ensure(config, &["etcd", "kubectl", "kube-apiserver"])?;
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

/// Tests of the whole workspace, since one package alone resolves other features and builds its dependencies again; told
/// where upstream's tools are, so that what needs them fails where they are not.
fn cargo_test(config: &Config, arguments: &[&str]) -> Result<()> {
    let mut tests = process::cargo(&config.root);
    tests.env("KNARR_TOOLS", &config.tools);
    process::run(
        tests
            .args(["test", "--workspace", "--no-fail-fast"])
            .args(arguments),
    )
}
