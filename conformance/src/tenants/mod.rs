//! Answers to tenants who have rights in one namespace, on one node, or none: generated requests, and what the real
//! kube-apiserver answered to each of them.
//!
//! [`fixture`] makes the same small world on any server: two namespaces, two nodes, one object of every kind on either side,
//! users with rights on one side. [`requests`] generates, for every row, verb and subresource, the plain address, the other
//! side's, selectors and bodies that name the other side, nested addresses, lists over all namespaces, watches, apply. No
//! request changes anything: writes are dry runs. [`run`] sends them as each user and notes code, reason and what was shown;
//! [`record`] keeps that as data (`conformance/tenants/<user>.tsv`) and compares. [`forms`] does the same with the forms of
//! answers, once for kinds of each shape.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Result, bail};

use crate::facts::Facts;
use fixture::Sample;
use run::{Ask, Sender};

mod bindings;
mod components;
mod custom;
pub mod escalation;
pub mod fixture;
pub mod forms;
pub mod record;
pub mod requests;
pub mod run;

/// The namespace, and the suffix of cluster-wide names, on which tenants have rights.
pub const OWN: &str = "blue";
/// The namespace, and the suffix, on which they have none.
pub const OTHER: &str = "red";

/// Users, and the group of each beside `system:authenticated`.
pub const USERS: [(&str, Option<&str>); 6] = [
    ("view", None),
    ("edit", None),
    ("all", None),
    ("none", None),
    ("roles", None),
    ("system:node:one-blue", Some("system:nodes")),
];

/// The file of a user's answers.
#[must_use]
pub fn file_name(user: &str) -> String {
    format!("{}.tsv", user.rsplit(':').next().unwrap_or(user))
}

/// Makes the fixture on a server and writes what it answers to every user.
pub async fn record_all(root: &Path, sender: &Sender) -> Result<()> {
    let samples = prepare(root, sender).await?;
    let requests = requests(&samples)?;
    forms::record(root, &samples, sender).await?;
    for user in USERS {
        let answers = sender.all(user, &requests).await?;
        record::write(&root.join("tenants").join(file_name(user.0)), &answers)?;
    }
    Ok(())
}

/// Makes the fixture on a server and lists every answer that differs from the recorded one.
pub async fn compare_all(root: &Path, sender: &Sender) -> Result<Vec<String>> {
    let samples = prepare(root, sender).await?;
    let requests = requests(&samples)?;
    let known = record::read(&root.join("tenants/known.tsv"))?;
    let mut lines = forms::compare(root, &samples, sender, &known).await?;
    for user in USERS {
        let recorded = record::read(&root.join("tenants").join(file_name(user.0)))?;
        let answers = sender.all(user, &requests).await?;
        lines.extend(record::differences(user.0, &recorded, &answers, &known));
    }
    Ok(lines)
}

/// Makes the fixture; answers with the objects it is made of.
async fn prepare(root: &Path, sender: &Sender) -> Result<Vec<Sample>> {
    let facts = Facts::read(&root.join("../machinery/api/facts"))?;
    let samples = fixture::samples(&root.join("cases"), &facts)?;
    fixture::make(sender, &samples).await?;
    Ok(samples)
}

/// All requests of each user.
fn requests(samples: &[Sample]) -> Result<Vec<Ask>> {
    let mut asks: Vec<Ask> = samples.iter().flat_map(requests::of).collect();
    asks.extend(bindings::requests());
    asks.extend(components::requests());
    asks.extend(escalation::requests());
    distinct(asks)
}

/// Each request once; one id for two requests is a fault of the generator.
fn distinct(asks: Vec<Ask>) -> Result<Vec<Ask>> {
    let mut by_id: BTreeMap<String, Ask> = BTreeMap::new();
    for ask in asks {
        match by_id.get(&ask.id) {
            Some(known) if *known != ask => bail!("two requests are called {}", ask.id),
            _ => drop(by_id.insert(ask.id.clone(), ask)),
        }
    }
    Ok(by_id.into_values().collect())
}
