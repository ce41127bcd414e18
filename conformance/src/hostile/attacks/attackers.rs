//! Clients and their process: each makes one attack, turn after turn, until the time is over.

use super::bodies::make_large;
use super::{ATTACKS, Attack, Scene};
use crate::bench::connection::Target;
use crate::hostile::fixture;
use anyhow::Result;
use machinery_runtime::{Runtime, Scope};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Turns of an attack that were begun and ended, and those that the server refused or broke off.
#[derive(Debug, Default)]
struct Count {
    begun: AtomicU64,
    turns: AtomicU64,
    refused: AtomicU64,
    first: OnceLock<String>,
}

/// Result of an attack.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Outcome {
    pub name: String,
    pub clients: usize,
    pub begun: u64,
    pub turns: u64,
    pub refused: u64,
    /// The first refusal, in short.
    pub refusal: Option<String>,
}

/// Orders of the attackers' process.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Orders {
    pub kubeconfig: PathBuf,
    pub token: String,
    /// The attacker's own pod, where there is a node.
    pub pod: Option<String>,
    /// The server passes requests on to an extension of the hour's own.
    pub has_extension: bool,
    /// The cluster's, where it has a node.
    pub data_dir: Option<PathBuf>,
    pub seconds: u64,
    /// Words that the names of attacks have; all attacks where there are none.
    pub only: Vec<String>,
    /// Each attack has this part of its clients.
    pub part: usize,
}

/// Attacks for the time that the orders say.
///
/// # Errors
/// The server cannot be reached before the attacks begin.
pub async fn attack_for_a_while(orders: Orders) -> Result<Vec<Outcome>> {
    let runtime = Runtime::real();
    let server = Target::from_kubeconfig(&orders.kubeconfig)?;
    let (mallory, nobody) = fixture::attackers(&server, orders.token)?;
    let scene = Scene {
        mallory,
        nobody,
        pod: orders.pod,
        has_extension: orders.has_extension,
        data_dir: orders.data_dir,
    };
    let end = runtime.monotonic() + Duration::from_secs(orders.seconds);
    // A refused write already has what there is.
    let _ = make_large(&scene).await;
    let attackers = Attackers::begin(&runtime, &scene, &orders.only, orders.part.max(1));
    runtime.sleep_until(end).await;
    Ok(attackers.end().await)
}

/// The attacks under way.
struct Attackers {
    scope: Scope,
    /// With the clients of each.
    counts: Vec<(&'static Attack, usize, Arc<Count>)>,
}

impl Attackers {
    fn begin(runtime: &Runtime, scene: &Scene, only: &[String], part: usize) -> Self {
        let scope = runtime.child_scope();
        let is_wanted = |attack: &&Attack| {
            let is_asked = only.is_empty() || only.iter().any(|word| attack.name.contains(word.as_str()));
            let is_possible = (scene.data_dir.is_some() || !attack.needs_node)
                && (scene.has_extension || !attack.needs_extension);
            is_asked && is_possible
        };
        let mut counts = Vec::new();
        for attack in ATTACKS.iter().filter(is_wanted) {
            let count: Arc<Count> = Arc::default();
            let clients = attack.clients.div_ceil(part);
            for _ in 0..clients {
                let client = keep(attack, scene.clone(), scope.runtime().clone(), Arc::clone(&count));
                scope.runtime().spawn("attacker", client).detach();
            }
            counts.push((attack, clients, count));
        }
        Self { scope, counts }
    }

    /// Ends them all.
    async fn end(self) -> Vec<Outcome> {
        self.scope.stopped().await;
        let outcome = |(attack, clients, count): &(&'static Attack, usize, Arc<Count>)| Outcome {
            name: attack.name.to_owned(),
            clients: *clients,
            begun: count.begun.load(Ordering::Relaxed),
            turns: count.turns.load(Ordering::Relaxed),
            refused: count.refused.load(Ordering::Relaxed),
            refusal: count.first.get().cloned(),
        };
        self.counts.iter().map(outcome).collect()
    }
}

/// Characters of a refusal.
const SHOWN: usize = 200;

async fn keep(attack: &'static Attack, scene: Scene, runtime: Runtime, count: Arc<Count>) {
    loop {
        count.begun.fetch_add(1, Ordering::Relaxed);
        let turn = (attack.turn)(scene.clone(), runtime.clone()).await;
        count.turns.fetch_add(1, Ordering::Relaxed);
        if let Err(error) = turn {
            count.refused.fetch_add(1, Ordering::Relaxed);
            let _ = count
                .first
                .get_or_init(|| format!("{error:#}").chars().take(SHOWN).collect());
            // A machine that both attack and serve has to leave the server some of its time.
            runtime.sleep(Duration::from_millis(20)).await;
        }
    }
}
