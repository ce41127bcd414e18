//! Questions in, answers out: on the zone, and over sockets.

use crate::forward::Forwarder;
use crate::query::{Query, kind, parse};
use crate::records::brought;
use crate::resolve::{Resolution, resolve};
use crate::server::Server;
use crate::zone::{OwnedRecord, Zone};
use machinery_client::Projection;
use machinery_meta::{ObjectHeader, ObjectKey};
use machinery_runtime::{Runtime, Scope};
use machinery_views::{Service, Slice};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::{Arc, RwLock};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream, UdpSocket};

pub(crate) fn zone() -> Zone {
    let mut zone = Zone::new("cluster.local");
    add(
        &mut zone,
        "web",
        json!({"clusterIP": "10.96.0.5", "ports": [{"name": "http", "protocol": "TCP", "port": 80}]}),
        &[],
    );
    let endpoints = json!({
        "endpoints": [
            {"addresses": ["10.244.0.2"], "hostname": "a"},
            {"addresses": ["10.244.0.3"]},
            {"addresses": ["10.244.0.4"], "conditions": {"ready": false}}],
        "ports": [{"name": "db", "protocol": "TCP", "port": 5432}]});
    add(
        &mut zone,
        "db",
        json!({"clusterIP": "None", "ports": [{"name": "db", "port": 5432}]}),
        &[endpoints],
    );
    add(
        &mut zone,
        "out",
        json!({"type": "ExternalName", "externalName": "Example.org."}),
        &[],
    );
    add(
        &mut zone,
        "in",
        json!({"type": "ExternalName", "externalName": "web.ns.svc.cluster.local"}),
        &[],
    );
    zone.set_complete();
    zone
}

fn add(zone: &mut Zone, name: &str, spec: Value, slices: &[Value]) {
    let key = ObjectKey::new("ns", name);
    let bytes = |value: &Value| serde_json::to_vec(value).unwrap();
    let service = Service::project(&ObjectHeader::default(), &bytes(&json!({"spec": spec}))).unwrap();
    let header = ObjectHeader {
        key: key.clone(),
        labels: vec![("kubernetes.io/service-name".into(), name.into())],
        ..ObjectHeader::default()
    };
    let slices: Vec<Slice> = slices
        .iter()
        .map(|one| Slice::project(&header, &bytes(one)).unwrap())
        .collect();
    let domain = zone.domain().to_owned();
    let made = brought(&domain, &key, &service, slices.iter(), usize::MAX);
    zone.put(&key, made.records);
}

pub(crate) fn question(name: &str, kind: u16) -> Vec<u8> {
    let mut out = vec![0, 0, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    crate::answer::write_name(&mut out, name);
    out.extend(kind.to_be_bytes());
    out.extend([0, 1]);
    out
}

fn query(name: &str, kind: u16) -> Query {
    parse(&question(name, kind)).unwrap()
}

/// An answer in words: the code, the counts, and the data of every record as text.
pub(crate) fn shown(answer: &[u8]) -> String {
    use hickory_proto::op::Message;
    let message = Message::from_vec(answer).expect("another implementation reads it");
    let mut out = vec![message.response_code.to_string()];
    for (section, records) in [
        ("", &message.answers),
        ("authority ", &message.authorities),
        ("additional ", &message.additionals),
    ] {
        out.extend(records.iter().map(|record| {
            format!(
                "{section}{} {} {}",
                record.name,
                record.record_type(),
                record.data
            )
        }));
    }
    out.join("; ")
}

#[track_caller]
fn check(name: &str, kind: u16, expected: &str) {
    let Resolution::Answer(answer) = resolve(&zone(), &query(name, kind), 512) else {
        panic!("{name} is not answered here")
    };
    assert_eq!(shown(&answer), expected);
}

const SOA: &str =
    "authority cluster.local. SOA ns.dns.cluster.local. hostmaster.cluster.local. 5 7200 1800 86400 5";

#[test]
fn services_have_addresses() {
    check(
        "web.ns.svc.cluster.local",
        kind::A,
        "No Error; web.ns.svc.cluster.local. A 10.96.0.5",
    );
    check(
        "WEB.ns.svc.cluster.local",
        kind::A,
        "No Error; WEB.ns.svc.cluster.local. A 10.96.0.5",
    );
    check(
        "web.ns.svc.cluster.local",
        kind::AAAA,
        &format!("No Error; {SOA}"),
    );
    check("ns.svc.cluster.local", kind::A, &format!("No Error; {SOA}"));
    check(
        "5.0.96.10.in-addr.arpa",
        kind::PTR,
        "No Error; 5.0.96.10.in-addr.arpa. PTR web.ns.svc.cluster.local.",
    );
}

#[test]
fn headless_services_are_their_ready_endpoints() {
    let name = "db.ns.svc.cluster.local";
    check(
        name,
        kind::A,
        &format!("No Error; {name}. A 10.244.0.2; {name}. A 10.244.0.3"),
    );
    check(
        &format!("a.{name}"),
        kind::A,
        &format!("No Error; a.{name}. A 10.244.0.2"),
    );
    check(
        &format!("10-244-0-3.{name}"),
        kind::A,
        &format!("No Error; 10-244-0-3.{name}. A 10.244.0.3"),
    );
}

#[test]
fn named_ports_have_service_records() {
    check(
        "_http._tcp.web.ns.svc.cluster.local",
        kind::SRV,
        "No Error; _http._tcp.web.ns.svc.cluster.local. SRV 0 100 80 web.ns.svc.cluster.local.; \
         additional web.ns.svc.cluster.local. A 10.96.0.5",
    );
    check(
        "_tcp.web.ns.svc.cluster.local",
        kind::SRV,
        &format!("No Error; {SOA}"),
    );
}

#[test]
fn search_path_misses_end_here() {
    check(
        "example.org.ns.svc.cluster.local",
        kind::A,
        &format!("Non-Existent Domain; {SOA}"),
    );
    check(
        "cluster.local.cluster.local",
        kind::A,
        &format!("Non-Existent Domain; {SOA}"),
    );
    assert_eq!(
        resolve(&zone(), &query("example.org", kind::A), 512),
        Resolution::Forward
    );
    assert_eq!(
        resolve(&zone(), &query("notcluster.local", kind::A), 512),
        Resolution::Forward
    );
    assert_eq!(
        resolve(&zone(), &query("1.1.1.1.in-addr.arpa", kind::PTR), 512),
        Resolution::Forward
    );
}

#[test]
fn pods_are_what_their_names_spell() {
    let name = "10-244-0-9.ns.pod.cluster.local";
    check(name, kind::A, &format!("No Error; {name}. A 10.244.0.9"));
    check(
        "x.ns.pod.cluster.local",
        kind::A,
        &format!("Non-Existent Domain; {SOA}"),
    );
}

#[test]
fn aliases_are_followed_where_they_lead() {
    check(
        "in.ns.svc.cluster.local",
        kind::A,
        "No Error; in.ns.svc.cluster.local. CNAME web.ns.svc.cluster.local.; web.ns.svc.cluster.local. A 10.96.0.5",
    );
    check(
        "out.ns.svc.cluster.local",
        kind::CNAME,
        "No Error; out.ns.svc.cluster.local. CNAME example.org.",
    );
    assert_eq!(
        resolve(&zone(), &query("out.ns.svc.cluster.local", kind::A), 512),
        Resolution::Follow {
            target: "example.org".to_owned()
        }
    );
}

#[test]
fn dns_zone_drops_records_with_their_service() {
    let mut zone = zone();
    for name in ["web", "db", "out", "in"] {
        zone.put(&ObjectKey::new("ns", name), OwnedRecord::new());
    }
    let Resolution::Answer(answer) = resolve(&zone, &query("ns.svc.cluster.local", kind::A), 512) else {
        panic!()
    };
    assert!(shown(&answer).starts_with("Non-Existent Domain"));
    assert_eq!(
        resolve(&zone, &query("5.0.96.10.in-addr.arpa", kind::PTR), 512),
        Resolution::Forward
    );
}

/// A zone with a service of a hundred endpoints.
fn big_zone() -> Zone {
    let mut zone = zone();
    let endpoints: Vec<Value> = (1..=100)
        .map(|last| json!({"addresses": [format!("10.244.1.{last}")]}))
        .collect();
    add(
        &mut zone,
        "big",
        json!({"clusterIP": "None"}),
        &[json!({"endpoints": endpoints})],
    );
    zone
}

#[test]
fn too_many_addresses_are_cut_and_said_so() {
    let zone = big_zone();
    let name = query("big.ns.svc.cluster.local", kind::A);
    let Resolution::Answer(small) = resolve(&zone, &name, 512) else {
        panic!()
    };
    let Resolution::Answer(large) = resolve(&zone, &name, 65535) else {
        panic!()
    };
    assert!(small.len() <= 512 && small[2] & 2 != 0);
    assert_eq!((large[2] & 2, shown(&large).matches(" A ").count()), (0, 100));
}

fn server(zone: Zone, upstream: &[SocketAddr], runtime: &Runtime) -> Arc<Server> {
    let forwarder = Forwarder::new(upstream, runtime.clone());
    Server::new(Arc::new(RwLock::new(zone)), forwarder, runtime.clone())
}

#[tokio::test]
async fn questions_over_udp_are_answered_and_others_refused() {
    let runtime = Runtime::real();
    let server = server(zone(), &[], &runtime);
    let socket = Arc::new(UdpSocket::bind("127.0.0.1:0").await.unwrap());
    let address = socket.local_addr().unwrap();
    let scope = runtime.child_scope();
    scope
        .runtime()
        .spawn("server", async move { server.datagrams(&socket).await })
        .detach();
    let client = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    client.connect(address).await.unwrap();
    for (name, expected) in [
        (
            "web.ns.svc.cluster.local",
            "No Error; web.ns.svc.cluster.local. A 10.96.0.5",
        ),
        ("example.org", "Query Refused"),
    ] {
        client.send(&question(name, kind::A)).await.unwrap();
        let mut answer = vec![0; 512];
        let length = client.recv(&mut answer).await.unwrap();
        assert_eq!(shown(&answer[..length]), expected);
    }
}

/// A saved zone may be older than a service.
#[tokio::test]
async fn name_that_a_saved_zone_lacks_is_answered_when_it_is_known() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("zone");
    crate::saved::save(&RwLock::new(Zone::new("cluster.local")), &path).unwrap();
    let loaded = Arc::new(RwLock::new(crate::saved::load(&path, "cluster.local").unwrap()));
    let runtime = Runtime::real();
    let forwarder = Forwarder::new(&[], runtime.clone());
    let server = Server::new(Arc::clone(&loaded), forwarder, runtime.clone());
    let socket = Arc::new(UdpSocket::bind("127.0.0.1:0").await.unwrap());
    let address = socket.local_addr().unwrap();
    let scope = runtime.child_scope();
    let serve = async move { server.datagrams(&socket).await };
    scope.runtime().spawn("server", serve).detach();
    let client = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    client.connect(address).await.unwrap();
    let mut buffer = vec![0; 512];
    // The answer to the second shows that the first waits.
    for name in ["web.ns.svc.cluster.local", "svc.cluster.local"] {
        client.send(&question(name, kind::A)).await.unwrap();
    }
    let length = client.recv(&mut buffer).await.unwrap();
    assert!(shown(&buffer[..length]).starts_with("No Error"));
    loaded.write().unwrap().adopt(zone());
    loaded.write().unwrap().set_complete();
    let length = client.recv(&mut buffer).await.unwrap();
    let found = "No Error; web.ns.svc.cluster.local. A 10.96.0.5";
    assert_eq!(shown(&buffer[..length]), found);
}

#[tokio::test]
async fn dns_connection_answers_every_question_in_full() {
    let runtime = Runtime::real();
    let scope = runtime.child_scope();
    let address = listening(server(big_zone(), &[], &runtime), &scope).await;
    let mut client = TcpStream::connect(address).await.unwrap();
    let questions = [
        "web.ns.svc.cluster.local",
        "big.ns.svc.cluster.local",
        "example.org",
    ];
    // All at once: the second does not wait for the first answer.
    for name in questions {
        let question = question(name, kind::A);
        let length = u16::try_from(question.len()).unwrap().to_be_bytes();
        client
            .write_all(&[&length[..], &question].concat())
            .await
            .unwrap();
    }
    let mut answers = Vec::new();
    for _ in questions {
        let mut answer = vec![0; usize::from(client.read_u16().await.unwrap())];
        client.read_exact(&mut answer).await.unwrap();
        assert_eq!(answer[2] & 2, 0, "nothing is cut");
        answers.push(shown(&answer));
    }
    assert_eq!(answers[0], "No Error; web.ns.svc.cluster.local. A 10.96.0.5");
    assert_eq!(answers[1].matches(" A 10.244.1.").count(), 100);
    assert_eq!(answers[2], "Query Refused");
}

/// A listener of a server over connections.
async fn listening(server: Arc<Server>, scope: &Scope) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    scope
        .runtime()
        .spawn("server", async move { server.connections(&listener).await })
        .detach();
    address
}

/// A connection from an address of this machine, and the answer to its first question.
async fn asked(server: SocketAddr, own: [u8; 4]) -> std::io::Result<(TcpStream, String)> {
    let socket = TcpSocket::new_v4()?;
    socket.bind((own, 0).into())?;
    let mut client = socket.connect(server).await?;
    let question = question("web.ns.svc.cluster.local", kind::A);
    let length = u16::try_from(question.len()).unwrap().to_be_bytes();
    client.write_all(&[&length[..], &question].concat()).await?;
    let mut answer = vec![0; usize::from(client.read_u16().await?)];
    client.read_exact(&mut answer).await?;
    Ok((client, shown(&answer)))
}

#[tokio::test]
async fn dns_connections_that_a_dozen_addresses_hold_keep_nobody_out() {
    let runtime = Runtime::real();
    let scope = runtime.child_scope();
    let address = listening(server(zone(), &[], &runtime), &scope).await;
    let mut held = Vec::new();
    for last in 1..=12 {
        for _ in 0..40 {
            held.extend(asked(address, [127, 0, 3, last]).await);
        }
    }
    let (mut first, _) = held.swap_remove(0);
    assert_eq!(first.read(&mut [0]).await.unwrap_or(0), 0, "the oldest is closed");
    for last in 101..=104 {
        let (_, answer) = asked(address, [127, 0, 3, last]).await.unwrap();
        assert_eq!(answer, "No Error; web.ns.svc.cluster.local. A 10.96.0.5");
    }
}

#[tokio::test]
async fn dns_connection_ends_with_its_life() {
    let runtime = Runtime::real();
    let scope = runtime.child_scope();
    let mut server = server(zone(), &[], &runtime);
    Arc::get_mut(&mut server).unwrap().life = std::time::Duration::ZERO;
    let address = listening(server, &scope).await;
    assert!(asked(address, [127, 0, 3, 1]).await.is_err());
}

#[test]
fn zone_takes_a_bounded_number_of_records_of_a_service() {
    let ports: Vec<_> = (1..=1_000)
        .map(|port| json!({"name": format!("p{port}"), "port": port, "protocol": "TCP"}))
        .collect();
    let endpoints: Vec<_> = (0..200)
        .map(|at| json!({"addresses": [format!("10.1.0.{at}")], "conditions": {"ready": true}}))
        .collect();
    let mut zone = Zone::new("cluster.local");
    let slice = json!({"ports": ports, "endpoints": endpoints});
    add(&mut zone, "many", json!({"clusterIP": "None"}), &[slice]);
    let records = zone.brought_by(&ObjectKey::new("ns", "many")).unwrap();
    assert!(records.len() <= 32_768 + 4, "{}", records.len());
    let own = records
        .iter()
        .filter(|(name, _)| &**name == "many.ns.svc.cluster.local");
    assert_eq!(own.count(), 200, "each endpoint has its address");
}
