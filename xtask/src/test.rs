//! `cargo xtask test`: installs what is missing and runs all tests. `.ci/run` calls it.
//!
//! Three layers: every crate's own tests; tests that need root, by name; a cluster with real containers.
//! What this machine lacks is said by name and not counted as passed.

use crate::ci::{cargo, step};
use crate::config::Config;
use crate::{packages, tools};
use anyhow::Result;

/// Test binaries whose tests are marked `needs root`; other marks (`needs KNARR_API_TESTDATA`) are run by hand.
/// `node` and `outages` run clusters with real containers.
const NEED_ROOT: [&str; 3] = ["traffic", "node", "outages"];

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
    cargo(config, &["test", "--workspace"])?;
    if packages::is_root()? {
        step("tests that need root");
        for test in NEED_ROOT {
            // The whole workspace, since one package alone resolves other features and builds its dependencies again.
            cargo(
                config,
                &["test", "--workspace", "--test", test, "--", "--ignored"],
            )?;
        }
    } else {
        for test in NEED_ROOT {
            println!("SKIPPED, not passed: {test}, since this is not root");
        }
    }
    Ok(())
}
