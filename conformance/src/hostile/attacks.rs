//! The attacks, a row each. An attack is made by some clients at once, each of which goes on until the hour is over; what
//! fails is what an attacker expects.
//!
//! Attackers are a process of their own that gives way to others: were they elsewhere, their own work would not take the
//! server's time, nor the tenants'.

use super::fixture::{self, Access};
use super::node_attacks::{filled_disk, killed, streams};
use super::trap_attacks::{dear_object, many_groups, many_ports, silent_webhook, trickling_answer};
use crate::bench::connection::Target;
use anyhow::{Context, Result};
use base64::Engine;
use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Method, header};
use http_body_util::BodyExt;
use machinery_runtime::{Runtime, Scope};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Clients and objects that an attack uses.
#[derive(Debug, Clone)]
pub(super) struct Scene {
    pub(super) mallory: Access,
    nobody: Target,
    /// A running pod of the attacker's, where there is a node.
    pub(super) pod: Option<String>,
    has_extension: bool,
    /// The cluster's, where it has a node.
    pub(super) data_dir: Option<PathBuf>,
}

/// An attack: one turn of one client.
struct Attack {
    name: &'static str,
    /// Clients at once.
    clients: usize,
    needs_node: bool,
    /// Requests are passed on to an extension of the hour's own.
    needs_extension: bool,
    turn: fn(Scene, Runtime) -> BoxFuture<'static, Result<()>>,
}

const fn attack(
    name: &'static str,
    clients: usize,
    turn: fn(Scene, Runtime) -> BoxFuture<'static, Result<()>>,
) -> Attack {
    Attack {
        name,
        clients,
        needs_node: false,
        needs_extension: false,
        turn,
    }
}

const fn node_attack(
    name: &'static str,
    clients: usize,
    turn: fn(Scene, Runtime) -> BoxFuture<'static, Result<()>>,
) -> Attack {
    Attack {
        needs_node: true,
        ..attack(name, clients, turn)
    }
}

static ATTACKS: [Attack; 21] = [
    attack("half-sent heads", 100, |scene, runtime| {
        Box::pin(half_sent_head(scene, runtime))
    }),
    attack("half-sent bodies", 100, |scene, runtime| {
        Box::pin(half_sent_body(scene, runtime))
    }),
    attack("connections without TLS", 200, |scene, runtime| {
        Box::pin(silent(scene, runtime))
    }),
    attack("connections that ask nothing", 200, |scene, runtime| {
        Box::pin(idle(scene, runtime))
    }),
    attack("connections opened and dropped", 8, |scene, _| {
        Box::pin(opened(scene))
    }),
    attack("lists never read", 30, |scene, runtime| {
        Box::pin(unread_list(scene, runtime))
    }),
    attack("lists read", 4, |scene, _| Box::pin(large_list(scene))),
    attack("watches never read", 50, |scene, runtime| {
        Box::pin(unread_watch(scene, runtime))
    }),
    attack("watches opened and dropped", 8, |scene, _| {
        Box::pin(watches(scene))
    }),
    attack("patch bombs", 4, |scene, _| Box::pin(patch_bomb(scene))),
    attack("deep and repeated bodies", 4, |scene, _| {
        Box::pin(deep_body(scene))
    }),
    attack("tokens and reviews", 8, |scene, runtime| {
        Box::pin(authentication(scene, runtime))
    }),
    attack("events", 8, |scene, runtime| Box::pin(events(scene, runtime))),
    attack("objects with dear rules", 4, |scene, runtime| {
        Box::pin(dear_object(scene, runtime))
    }),
    attack("writes that a webhook never answers for", 30, |scene, runtime| {
        Box::pin(silent_webhook(scene, runtime))
    }),
    attack("reviews of many groups", 4, |scene, _| {
        Box::pin(many_groups(scene))
    }),
    attack("services of many ports", 4, |scene, runtime| {
        Box::pin(many_ports(scene, runtime))
    }),
    Attack {
        needs_extension: true,
        ..attack("answers of an extension that trickle", 50, |scene, runtime| {
            Box::pin(trickling_answer(scene, runtime))
        })
    },
    node_attack("exec, attach and port-forward held open", 20, |scene, runtime| {
        Box::pin(streams(scene, runtime))
    }),
    node_attack("agent and containerd killed", 1, |scene, runtime| {
        Box::pin(killed(scene, runtime))
    }),
    node_attack("disk filled by a pod", 1, |scene, runtime| {
        Box::pin(filled_disk(scene, runtime))
    }),
];

/// Turns of an attack that were begun and ended, and those that the server refused or broke off.
#[derive(Debug, Default)]
struct Count {
    begun: AtomicU64,
    turns: AtomicU64,
    refused: AtomicU64,
}

/// Result of an attack.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Outcome {
    pub name: String,
    pub clients: usize,
    pub begun: u64,
    pub turns: u64,
    pub refused: u64,
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
    // Whoever is refused already has what there is.
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
        };
        self.counts.iter().map(outcome).collect()
    }
}

async fn keep(attack: &'static Attack, scene: Scene, runtime: Runtime, count: Arc<Count>) {
    loop {
        count.begun.fetch_add(1, Ordering::Relaxed);
        let turn = (attack.turn)(scene.clone(), runtime.clone()).await;
        count.turns.fetch_add(1, Ordering::Relaxed);
        if turn.is_err() {
            count.refused.fetch_add(1, Ordering::Relaxed);
            // A machine that both attack and serve has to leave the server some of its time.
            runtime.sleep(Duration::from_millis(20)).await;
        }
    }
}

/// Longer than the server lets anybody idle.
const HELD: Duration = Duration::from_secs(120);

/// Waits until the server has had enough.
async fn until_dropped(mut stream: impl AsyncReadExt + Unpin, runtime: &Runtime) -> Result<()> {
    let mut buffer = [0; 1_024];
    let reading = async { while stream.read(&mut buffer).await.is_ok_and(|read| read > 0) {} };
    let ended = runtime.timeout(HELD, reading).await;
    ended.context("the server still holds it")
}

async fn half_sent_head(scene: Scene, runtime: Runtime) -> Result<()> {
    let mut stream = scene.nobody.stream().await?;
    stream
        .write_all(b"GET /api HTTP/1.1\r\nhost: x\r\nx-slow: ")
        .await?;
    stream.flush().await?;
    until_dropped(stream, &runtime).await
}

pub(super) fn head(scene: &Scene, method: &str, path: &str, rest: &str) -> String {
    let authorization = scene.mallory.target.authorization();
    format!("{method} {path} HTTP/1.1\r\nhost: x\r\nauthorization: {authorization}\r\n{rest}\r\n")
}

async fn half_sent_body(scene: Scene, runtime: Runtime) -> Result<()> {
    let mut stream = scene.mallory.target.stream().await?;
    let path = maps(&scene);
    let rest = "content-type: application/json\r\ncontent-length: 3000000\r\n";
    stream
        .write_all(head(&scene, "POST", &path, rest).as_bytes())
        .await?;
    stream.write_all(&[b' '; 100_000]).await?;
    stream.flush().await?;
    until_dropped(stream, &runtime).await
}

async fn silent(scene: Scene, runtime: Runtime) -> Result<()> {
    until_dropped(scene.nobody.tcp().await?, &runtime).await
}

async fn idle(scene: Scene, runtime: Runtime) -> Result<()> {
    until_dropped(scene.nobody.stream().await?, &runtime).await
}

async fn opened(scene: Scene) -> Result<()> {
    scene.nobody.stream().await.map(drop)
}

fn maps(scene: &Scene) -> String {
    format!("/api/v1/namespaces/{}/configmaps", scene.mallory.namespace)
}

/// Objects that make a list large.
const LARGE: usize = 50;
const LARGE_BYTES: usize = 200_000;

async fn make_large(scene: &Scene) -> Result<()> {
    let mut client = scene.mallory.target.connect().await?;
    for number in 0..LARGE {
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("large-{number}")},
            "data": {"k": "v".repeat(LARGE_BYTES)}});
        client
            .send_json(Method::POST, &maps(scene), object.to_string())
            .await?;
    }
    Ok(())
}

async fn unread_list(scene: Scene, runtime: Runtime) -> Result<()> {
    let mut stream = scene.mallory.target.stream().await?;
    let request = head(&scene, "GET", &maps(&scene), "accept: application/yaml\r\n");
    stream.write_all(request.as_bytes()).await?;
    stream.flush().await?;
    runtime.sleep(Duration::from_secs(30)).await;
    Ok(())
}

async fn large_list(scene: Scene) -> Result<()> {
    const FORMS: [&str; 3] = [
        "application/json",
        "application/vnd.kubernetes.protobuf",
        "application/json;as=Table;v=v1;g=meta.k8s.io",
    ];
    let mut client = scene.mallory.target.connect().await?;
    for form in FORMS {
        client
            .call(
                Method::GET,
                &maps(&scene),
                &[(header::ACCEPT, form)],
                Bytes::new(),
            )
            .await?;
    }
    Ok(())
}

async fn unread_watch(scene: Scene, runtime: Runtime) -> Result<()> {
    let mut stream = scene.mallory.target.stream().await?;
    let path = format!("{}?watch=1", maps(&scene));
    stream
        .write_all(head(&scene, "GET", &path, "").as_bytes())
        .await?;
    stream.flush().await?;
    runtime.sleep(Duration::from_secs(30)).await;
    Ok(())
}

async fn watches(scene: Scene) -> Result<()> {
    let mut client = scene.mallory.target.connect().await?;
    let path = format!(
        "/api/v1/namespaces/{}/pods?watch=1&timeoutSeconds=300",
        scene.mallory.namespace
    );
    let answer = client.open(Method::GET, &path, &[], Bytes::new()).await?;
    anyhow::ensure!(answer.status().is_success(), "{}", answer.status());
    Ok(())
}

/// A patch that doubles what it finds, many times.
async fn patch_bomb(scene: Scene) -> Result<()> {
    let mut client = scene.mallory.target.connect().await?;
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "bomb"}, "data": {"k": "v".repeat(10_000)}});
    let _ = client
        .send_json(Method::POST, &maps(&scene), object.to_string())
        .await;
    let copies =
        (0..4_000).map(|number| json!({"op": "copy", "from": "/data", "path": format!("/data/k{number}")}));
    let moves = (0..4_000).map(|_| json!({"op": "move", "from": "/metadata", "path": "/metadata"}));
    let patch = serde_json::Value::Array(copies.chain(moves).collect());
    let content = [(header::CONTENT_TYPE, "application/json-patch+json")];
    let one = format!("{}/bomb", maps(&scene));
    client
        .call(Method::PATCH, &one, &content, patch.to_string().into())
        .await?;
    Ok(())
}

async fn deep_body(scene: Scene) -> Result<()> {
    let mut client = scene.mallory.target.connect().await?;
    let deep = format!("{}{}", "[".repeat(1_000_000), "]".repeat(1_000_000));
    let aliases: Vec<String> = (1..60)
        .map(|level| format!("a{level}: &a{level} [*a{0},*a{0},*a{0}]", level - 1))
        .collect();
    let yaml = format!("a0: &a0 [x]\n{}\n", aliases.join("\n"));
    let wide = format!(
        "{{{}\"z\":1}}",
        (0..150_000)
            .map(|n| format!("\"k{n}\":{{}},"))
            .collect::<String>()
    );
    for (form, body) in [
        ("application/json", deep),
        ("application/yaml", yaml),
        ("application/json", wide),
    ] {
        let content = [(header::CONTENT_TYPE, form)];
        let answer = client
            .open(Method::POST, &maps(&scene), &content, body.into())
            .await?;
        // It is read to its end, for the next one.
        answer.into_body().collect().await?;
    }
    Ok(())
}

async fn authentication(scene: Scene, runtime: Runtime) -> Result<()> {
    let claims = json!({"iss": "https://kubernetes.default.svc", "sub": "x", "exp": 1, "aud": ["x"]});
    let part = |text: &str| base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(text);
    let token = format!(
        "{}.{}.{}",
        part(r#"{"alg":"ES256","kid":"x"}"#),
        part(&claims.to_string()),
        part(&format!("{:064x}", runtime.random_u64()))
    );
    let forged = scene.nobody.for_client(Some(token), None)?;
    let mut client = forged.connect().await?;
    for _ in 0..20 {
        let answer = client
            .open(Method::GET, "/api/v1/pods", &[], Bytes::new())
            .await?;
        answer.into_body().collect().await?;
    }
    let mut own = scene.mallory.target.connect().await?;
    let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview", "spec": {"namespace": scene.mallory.namespace}});
    for _ in 0..20 {
        let path = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews";
        own.send_json(Method::POST, path, review.to_string()).await?;
    }
    Ok(())
}

async fn events(scene: Scene, runtime: Runtime) -> Result<()> {
    let mut client = scene.mallory.target.connect().await?;
    let namespace = scene.mallory.namespace;
    for _ in 0..100 {
        let event = json!({"apiVersion": "v1", "kind": "Event",
            "metadata": {"name": format!("e-{:x}", runtime.random_u64()), "namespace": namespace},
            "involvedObject": {"kind": "Pod", "namespace": namespace, "name": "x"}, "reason": "Flood", "message": "m".repeat(900)});
        client
            .send_json(
                Method::POST,
                &format!("/api/v1/namespaces/{namespace}/events"),
                event.to_string(),
            )
            .await?;
    }
    Ok(())
}
