//! Steps of a scenario, one after the other; the first that fails ends it.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::catalog::{Operator, Step};
use super::patience::poll;
use super::place::Place;
use super::pod;
use crate::process;

pub(super) fn run(operator: &Operator, place: &Place) -> Result<()> {
    if place.has("install.yaml")? {
        place.apply(&place.file("install.yaml")?)?;
    }
    for definitions in operator.definitions {
        place.apply(&place.module.join(definitions))?;
    }
    let mut running = match &operator.program {
        Some(program) => Some(pod::start(operator, program, place)?),
        None => None,
    };
    for (index, step) in operator.steps.iter().enumerate() {
        act(place, step).with_context(|| {
            let end = running.as_mut().and_then(|running| running.end().ok().flatten());
            let end = end.map(|end| format!(" (its program ended: {end})"));
            let position = index + 1;
            format!(
                "{}: step {position}{}: {step:?}",
                operator.name,
                end.unwrap_or_default()
            )
        })?;
    }
    println!("{}: {} steps passed", operator.name, operator.steps.len());
    Ok(())
}

fn act(place: &Place, step: &Step) -> Result<()> {
    match step {
        Step::Apply(file) => {
            let file = place.file(file)?;
            // Webhooks of an operator that has just begun may not answer yet.
            poll(|| Ok(place.apply(&file).err().map(|error| error.to_string())))
        }
        Step::Refused { file, text } => refused(place, &place.file(file)?, text),
        Step::Run(arguments) => process::run(place.own().args(*arguments)),
        Step::Kubectl(arguments) => process::run(place.kubectl().args(*arguments)),
        Step::Expect { get, path, text } => expect(place, get, path, text),
        Step::Gone(get) => gone(place, get),
        Step::Certificate {
            namespace,
            secret,
            host,
        } => certificate(place, namespace, secret, host),
    }
}

/// Waits until the server refuses to create what a file has.
fn refused(place: &Place, file: &Path, text: &str) -> Result<()> {
    poll(|| {
        let answer = place
            .kubectl()
            .args(["create", "--dry-run=server", "-f"])
            .arg(file)
            .output()?;
        let said = String::from_utf8_lossy(&answer.stderr).into_owned();
        if answer.status.success() {
            return Ok(Some("not refused".to_owned()));
        }
        Ok(if said.contains(text) { None } else { Some(said) })
    })
}

/// Waits until `kubectl get` answers with this text.
fn expect(place: &Place, get: &[&str], path: &str, text: &str) -> Result<()> {
    let format = format!("jsonpath={path}");
    poll(|| {
        let answer = place
            .kubectl()
            .arg("get")
            .args(get)
            .args(["-o", &format])
            .output()?;
        let seen = String::from_utf8_lossy(&answer.stdout).into_owned();
        Ok(if seen == text { None } else { Some(seen) })
    })
}

/// Waits until an object is not there.
fn gone(place: &Place, get: &[&str]) -> Result<()> {
    poll(|| {
        let answer = place
            .kubectl()
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

/// Waits until openssl verifies the Secret's certificate for the host by the Secret's authority.
fn certificate(place: &Place, namespace: &str, secret: &str, host: &str) -> Result<()> {
    poll(|| {
        for key in ["ca.crt", "tls.crt"] {
            let template = format!("go-template={{{{index .data {key:?} | base64decode}}}}");
            let get = ["get", "-n", namespace, "secret", secret, "-o", &template];
            let answer = place.kubectl().args(get).output()?;
            if !answer.status.success() {
                return Ok(Some(String::from_utf8_lossy(&answer.stderr).into_owned()));
            }
            fs::write(place.folder.join(key), answer.stdout)?;
        }
        let answer = process::command("openssl")
            .args(["verify", "-verify_hostname", host, "-CAfile"])
            .arg(place.folder.join("ca.crt"))
            .arg(place.folder.join("tls.crt"))
            .output()?;
        let said = String::from_utf8_lossy(&answer.stderr).into_owned();
        Ok(if answer.status.success() { None } else { Some(said) })
    })
}
