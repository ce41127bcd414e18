//! The attacks, a row each. An attack is made by some clients at once, each of which goes on until the hour is over; what
//! fails is what an attacker expects.
//!
//! Attackers are a process of their own that gives way to others ([`attackers`]): were they elsewhere, their own work would not
//! take the server's time, nor the tenants'.

mod attackers;
mod bodies;
mod certificates;
mod claims;
mod connections;
mod containers;
mod evictions;
mod node;
mod quotas;
mod tokens;
mod traps;

pub use attackers::{Orders, Outcome, attack_for_a_while};

use super::fixture::Access;
use crate::bench::connection::{Connection, Target};
use anyhow::Result;
use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Method, StatusCode, header};
use http_body_util::BodyExt;
use machinery_runtime::Runtime;
use std::path::PathBuf;

/// Clients and objects that an attack uses.
#[derive(Debug, Clone)]
struct Scene {
    mallory: Access,
    nobody: Target,
    /// A running pod of the attacker's, where there is a node.
    pod: Option<String>,
    has_extension: bool,
    /// The cluster's, where it has a node.
    data_dir: Option<PathBuf>,
}

type Turn = fn(Scene, Runtime) -> BoxFuture<'static, Result<()>>;

/// An attack: one turn of one client.
struct Attack {
    name: &'static str,
    /// Clients at once.
    clients: usize,
    needs_node: bool,
    /// Requests are passed on to an extension of the hour's own.
    needs_extension: bool,
    turn: Turn,
}

const fn attack(name: &'static str, clients: usize, turn: Turn) -> Attack {
    Attack {
        name,
        clients,
        needs_node: false,
        needs_extension: false,
        turn,
    }
}

const fn node_attack(name: &'static str, clients: usize, turn: Turn) -> Attack {
    Attack {
        needs_node: true,
        ..attack(name, clients, turn)
    }
}

/// A turn that is a function of the scene and the runtime.
macro_rules! turn {
    ($turn:path) => {
        |scene, runtime| Box::pin($turn(scene, runtime))
    };
}

#[rustfmt::skip]
static ATTACKS: [Attack; 31] = [
    attack("half-sent heads", 100, turn!(connections::half_sent_head)),
    attack("half-sent bodies", 100, turn!(connections::half_sent_body)),
    attack("connections without TLS", 200, turn!(connections::silent)),
    attack("connections that ask nothing", 200, turn!(connections::idle)),
    attack("connections opened and dropped", 8, turn!(connections::opened)),
    attack("lists never read", 30, turn!(connections::unread_list)),
    attack("lists read", 4, turn!(bodies::large_list)),
    attack("watches never read", 50, turn!(connections::unread_watch)),
    attack("watches opened and dropped", 8, turn!(connections::watches)),
    attack("patch bombs", 4, turn!(bodies::patch_bomb)),
    attack("deep and repeated bodies", 4, turn!(bodies::deep_body)),
    attack("tokens and reviews", 8, turn!(tokens::forged)),
    attack("tokens for a slow webhook", 64, turn!(tokens::invented)),
    attack("events", 8, turn!(bodies::events)),
    attack("objects with dear rules", 4, turn!(traps::dear_object)),
    attack("writes that a webhook never answers for", 30, turn!(traps::silent_webhook)),
    attack("reviews of many groups", 4, turn!(traps::many_groups)),
    attack("services of many ports", 4, turn!(traps::many_ports)),
    Attack {
        needs_extension: true,
        ..attack("answers of an extension that trickle", 50, turn!(traps::trickling_answer))
    },
    attack("quotas and what they count", 4, turn!(quotas::quotas)),
    attack("certificate requests", 4, turn!(certificates::requests)),
    attack("evictions and budgets", 8, turn!(evictions::evictions)),
    attack("claims with dear selectors", 2, turn!(claims::dear_selectors)),
    attack("pods of many claims", 2, turn!(claims::many_claims)),
    node_attack("exec, attach and port-forward held open", 20, turn!(node::streams)),
    node_attack("output of exec", 8, turn!(containers::output)),
    node_attack("logs never read", 10, turn!(containers::unread_log)),
    node_attack("pods of many tokens", 4, turn!(containers::many_tokens)),
    node_attack("volumes of an absent driver", 4, turn!(containers::absent_driver)),
    node_attack("agent and containerd killed", 1, turn!(node::killed)),
    node_attack("disk filled by a pod", 1, turn!(node::filled_disk)),
];

/// The beginning of a request by the attacker.
fn head(scene: &Scene, method: &str, path: &str, rest: &str) -> String {
    let authorization = scene.mallory.target.authorization();
    format!("{method} {path} HTTP/1.1\r\nhost: x\r\nauthorization: {authorization}\r\n{rest}\r\n")
}

/// Objects of this resource in the attacker's namespace.
fn own(scene: &Scene, group: &str, resource: &str) -> String {
    format!("{group}/namespaces/{}/{resource}", scene.mallory.namespace)
}

fn maps(scene: &Scene) -> String {
    own(scene, "/api/v1", "configmaps")
}

/// Sends JSON and reads the answer to its end, for the next one.
async fn status(client: &mut Connection, method: Method, path: &str, body: String) -> Result<StatusCode> {
    let content = [(header::CONTENT_TYPE, "application/json")];
    let answer = client.open(method, path, &content, body.into()).await?;
    let status = answer.status();
    answer.into_body().collect().await?;
    Ok(status)
}

/// Deletes an object at once, unless another client has done so.
async fn delete(client: &mut Connection, one: &str) -> Result<StatusCode> {
    let path = format!("{one}?gracePeriodSeconds=0");
    let answer = client.open(Method::DELETE, &path, &[], Bytes::new()).await?;
    let status = answer.status();
    answer.into_body().collect().await?;
    Ok(status)
}

/// A random name that begins with this word.
fn named(word: &str, runtime: &Runtime) -> String {
    format!("{word}-{:x}", runtime.random_u64())
}
