//! The operator's program as if it ran in a pod: its arguments and environment, the endpoints of its services, and the files
//! that a kubelet would mount.

use std::fs::{self, File};
use std::process::{Child, Stdio};

use anyhow::{Context, Result};
use serde_json::json;

use super::catalog::{Mount, Operator, Program, Service};
use super::patience::poll;
use super::place::Place;

/// A program that runs beside the server, stopped when this is dropped.
pub(super) struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Running {
    /// Says how the program ended, if it did.
    pub(super) fn end(&mut self) -> Result<Option<String>> {
        Ok(self.0.try_wait()?.map(|status| status.to_string()))
    }
}

/// Starts the program with its endpoints and mounts.
pub(super) fn start(operator: &Operator, program: &Program, place: &Place) -> Result<Running> {
    for service in program.services {
        lead_to_program(service, place)?;
    }
    for file in program.files {
        place.file(file)?;
    }
    for folder in program.folders {
        fs::create_dir_all(place.folder.join(folder))?;
    }
    let log = File::create(place.folder.join("operator.log"))?;
    let child = place
        .own()
        .args(program.arguments.iter().map(|word| place.fill(word)))
        .envs(
            program
                .environment
                .iter()
                .map(|(name, value)| (name, place.fill(value))),
        )
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .spawn()
        .with_context(|| format!("starting {}", operator.name))?;
    let running = Running(child);
    for mount in program.mounts {
        write(mount, place)?;
    }
    Ok(running)
}

/// Makes an EndpointSlice of the service that has the program's address.
fn lead_to_program(service: &Service, place: &Place) -> Result<()> {
    let slice = json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": format!("{}-outside", service.name),
            "namespace": service.namespace,
            "labels": {
                "kubernetes.io/service-name": service.name,
                "endpointslice.kubernetes.io/managed-by": "xtask",
            },
        },
        "addressType": "IPv4",
        "endpoints": [{"addresses": [place.address], "conditions": {"ready": true}}],
        "ports": [{"name": service.port, "port": place.port, "protocol": "TCP"}],
    });
    let file = place.folder.join(format!("{}-slice.json", service.name));
    fs::write(&file, slice.to_string())?;
    place.apply(&file)
}

/// Writes the Secret's files once it has them all.
fn write(mount: &Mount, place: &Place) -> Result<()> {
    let folder = place.folder.join(mount.folder);
    fs::create_dir_all(&folder)?;
    for key in mount.keys {
        let template = format!("go-template={{{{index .data {key:?} | base64decode}}}}");
        poll(|| {
            let answer = place
                .kubectl()
                .args([
                    "get",
                    "-n",
                    mount.namespace,
                    "secret",
                    mount.secret,
                    "-o",
                    &template,
                ])
                .output()?;
            if !answer.status.success() || answer.stdout.is_empty() {
                return Ok(Some(String::from_utf8_lossy(&answer.stderr).into_owned()));
            }
            fs::write(folder.join(key), answer.stdout)?;
            Ok(None)
        })
        .with_context(|| format!("key {key} of the Secret {}/{}", mount.namespace, mount.secret))?;
    }
    Ok(())
}
