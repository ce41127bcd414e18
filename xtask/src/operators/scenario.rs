//! Steps of a scenario, one after the other; the first that fails ends it.

use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::catalog::{Operator, Step};
use super::program;
use crate::config::Config;
use crate::process;

/// Time within which an expected answer must be there.
const PATIENCE: Duration = Duration::from_secs(120);

/// Folders of a run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place<'a> {
    pub kubeconfig: &'a Path,
    pub folder: &'a Path,
    pub module: &'a Path,
}

/// An operator that runs beside the server, stopped when this is dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(crate) fn run(config: &Config, operator: &Operator, place: &Place<'_>) -> Result<()> {
    for definitions in operator.definitions {
        // Definitions are too long for the annotation of a client's apply.
        let path = place.module.join(definitions);
        process::run(
            kubectl(config, place)
                .args(["apply", "--server-side", "-f"])
                .arg(path),
        )?;
    }
    let _running = match operator.runs_with {
        Some(arguments) => Some(start(config, operator, place, arguments)?),
        None => None,
    };
    for (index, step) in operator.steps.iter().enumerate() {
        act(config, operator, place, step)
            .with_context(|| format!("{}: step {}: {step:?}", operator.name, index + 1))?;
    }
    println!("{}: {} steps passed", operator.name, operator.steps.len());
    Ok(())
}

fn act(config: &Config, operator: &Operator, place: &Place<'_>, step: &Step) -> Result<()> {
    let files = config.root.join("conformance/operators").join(operator.name);
    match step {
        Step::Apply(file) => process::run(
            kubectl(config, place)
                .args(["apply", "--server-side", "-f"])
                .arg(files.join(file)),
        ),
        Step::Run(arguments) => {
            process::run(own(config, operator, place).args(*arguments).current_dir(files))
        }
        Step::Expect { get, path, text } => expect(config, place, get, path, text),
        Step::Gone(get) => gone(config, place, get),
    }
}

/// The operator's program, with its settings in the scenario's folder.
fn own(config: &Config, operator: &Operator, place: &Place<'_>) -> Command {
    let mut own = process::command(program::path(config, operator));
    own.env("KUBECONFIG", place.kubeconfig).env("HOME", place.folder);
    own
}

fn kubectl(config: &Config, place: &Place<'_>) -> Command {
    let mut kubectl = process::command(config.tools.join("kubectl"));
    kubectl.arg("--kubeconfig").arg(place.kubeconfig);
    kubectl
}

fn start(config: &Config, operator: &Operator, place: &Place<'_>, arguments: &[&str]) -> Result<Running> {
    let log = File::create(place.folder.join("operator.log"))?;
    let kubeconfig = place.kubeconfig.display().to_string();
    let child = own(config, operator, place)
        .args(
            arguments
                .iter()
                .map(|word| word.replace("KUBECONFIG", &kubeconfig)),
        )
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .spawn()
        .with_context(|| format!("starting {}", operator.name))?;
    Ok(Running(child))
}

/// Waits until `kubectl get` answers with this text.
fn expect(config: &Config, place: &Place<'_>, get: &[&str], path: &str, text: &str) -> Result<()> {
    let format = format!("jsonpath={path}");
    poll(|| {
        let answer = kubectl(config, place)
            .arg("get")
            .args(get)
            .args(["-o", &format])
            .output()?;
        let seen = String::from_utf8_lossy(&answer.stdout).into_owned();
        Ok(if seen == text { None } else { Some(seen) })
    })
}

/// Waits until an object is not there.
fn gone(config: &Config, place: &Place<'_>, get: &[&str]) -> Result<()> {
    poll(|| {
        let answer = kubectl(config, place)
            .args(["get", "--ignore-not-found", "-o", "name"])
            .args(get)
            .output()?;
        let seen = String::from_utf8_lossy(&answer.stdout).into_owned();
        Ok(if answer.status.success() && seen.is_empty() {
            None
        } else {
            Some(seen)
        })
    })
}

/// Asks again until nothing differs.
#[expect(
    clippy::disallowed_methods,
    reason = "a tool waits for others' programs by the wall clock"
)]
fn poll(mut difference: impl FnMut() -> Result<Option<String>>) -> Result<()> {
    let begun = Instant::now();
    while let Some(seen) = difference()? {
        if begun.elapsed() > PATIENCE {
            bail!("after {} s the answer is {seen:?}", PATIENCE.as_secs());
        }
        std::thread::sleep(Duration::from_millis(500));
    }
    Ok(())
}
