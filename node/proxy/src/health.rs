//! Health check ports of services with `externalTrafficPolicy: Local`: a load balancer checks on each node whether the service
//! has an endpoint there.

use crate::NodePortAddresses;
use machinery_runtime::{ConnectionSlots, LingeringClose, Runtime, Scope, UnreadFlag};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::net::SocketAddrV4;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// A client has this long for its request, and for taking the answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// A request's head; balancers send a few hundred bytes.
const MAX_HEAD: usize = 8 << 10;
/// The refusal of a large head, in the words of Go's server.
const HEAD_TOO_LARGE: &str = "HTTP/1.1 431 Request Header Fields Too Large\r\nContent-Type: text/plain; charset=utf-8\r\n\
                              Connection: close\r\n\r\n431 Request Header Fields Too Large";
/// Connections of all ports at a time, each of them an open file of the agent; the oldest of the address that has the most
/// gives way.
const MAX_CONNECTIONS: usize = 512;
/// Pause between attempts to listen, and after a connection that could not be accepted.
const RETRY: Duration = Duration::from_secs(1);

/// The ports that are served.
pub(crate) struct HealthPorts {
    services: BTreeMap<Arc<str>, Port>,
    /// True while the rules in the kernel are the planned ones.
    healthy: Arc<AtomicBool>,
    addresses: Arc<NodePortAddresses>,
    places: Arc<ConnectionSlots>,
    failed: Failed,
    runtime: Runtime,
}

/// Called with a service (`namespace/name`), the address at which its port is not served, and why: once for each port.
pub(crate) type Failed = Arc<dyn Fn(&str, SocketAddrV4, &io::Error) + Send + Sync>;

impl fmt::Debug for HealthPorts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HealthPorts")
            .field("services", &self.services)
            .finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct Port {
    number: u16,
    endpoints: Arc<AtomicUsize>,
    /// Ends its listener when dropped.
    _scope: Scope,
}

impl HealthPorts {
    pub(crate) fn new(runtime: Runtime, addresses: NodePortAddresses, failed: Failed) -> Self {
        Self {
            services: BTreeMap::new(),
            healthy: Arc::new(AtomicBool::new(true)),
            addresses: Arc::new(addresses),
            places: ConnectionSlots::new(MAX_CONNECTIONS),
            failed,
            runtime,
        }
    }

    pub(crate) fn set_healthy(&self, healthy: bool) {
        self.healthy.store(healthy, Ordering::Relaxed);
    }

    /// The service has this port (or none) and so many endpoints here.
    pub(crate) fn set(&mut self, service: &Arc<str>, port: Option<u16>, endpoints: usize) {
        let Some(number) = port else {
            self.services.remove(service);
            return;
        };
        if let Some(present) = self
            .services
            .get(service)
            .filter(|present| present.number == number)
        {
            present.endpoints.store(endpoints, Ordering::Relaxed);
            return;
        }
        self.services.remove(service);
        let scope = self.runtime.child_scope();
        let state = State {
            service: Arc::clone(service),
            endpoints: Arc::new(AtomicUsize::new(endpoints)),
            healthy: Arc::clone(&self.healthy),
            addresses: Arc::clone(&self.addresses),
            places: Arc::clone(&self.places),
        };
        let endpoints = Arc::clone(&state.endpoints);
        let runtime = scope.runtime().clone();
        let listening = listen(number, Arc::new(state), Arc::clone(&self.failed), runtime);
        scope.runtime().spawn("service health", listening).detach();
        let port = Port {
            number,
            endpoints,
            _scope: scope,
        };
        self.services.insert(Arc::clone(service), port);
    }
}

#[derive(Debug)]
struct State {
    service: Arc<str>,
    endpoints: Arc<AtomicUsize>,
    healthy: Arc<AtomicBool>,
    addresses: Arc<NodePortAddresses>,
    /// Of all ports.
    places: Arc<ConnectionSlots>,
}

async fn listen(port: u16, state: Arc<State>, failed: Failed, runtime: Runtime) {
    let mut was_reported = false;
    loop {
        match bind_all(port, &state.addresses).await {
            Ok(listeners) => {
                let serving = listeners.iter().map(|own| serve(own, &state, &runtime));
                futures::future::join_all(serving).await;
            }
            Err((address, error)) if !std::mem::replace(&mut was_reported, true) => {
                tracing::warn!(service = %state.service, %address, %error, "a service's health check port is not served");
                failed(&state.service, address, &error);
            }
            Err(_) => {}
        }
        runtime.sleep(RETRY).await;
    }
}

/// Listens at all addresses or at none.
async fn bind_all(
    port: u16,
    addresses: &NodePortAddresses,
) -> Result<Vec<TcpListener>, (SocketAddrV4, io::Error)> {
    let mut listeners = Vec::new();
    for address in addresses.to_listen(node_sys::machine::addresses()) {
        let address = SocketAddrV4::new(address, port);
        let bound = TcpListener::bind(address).await;
        listeners.push(bound.map_err(|error| (address, error))?);
    }
    Ok(listeners)
}

async fn serve(listener: &TcpListener, state: &Arc<State>, runtime: &Runtime) {
    loop {
        let Ok((stream, address)) = listener.accept().await else {
            runtime.sleep(RETRY).await;
            continue;
        };
        let place = state.places.enter(address.ip());
        let (state, inside) = (Arc::clone(state), runtime.clone());
        let answer = async move {
            let answer = inside.timeout(PATIENCE, answer(stream, &state, inside.clone()));
            let _ = place.closing.run_until_cancelled(answer).await;
        };
        runtime.spawn_request("service health answer", answer).detach();
    }
}

/// Any request gets the same answer, as upstream's.
async fn answer(stream: TcpStream, state: &State, runtime: Runtime) -> io::Result<()> {
    let unread = UnreadFlag::default();
    let mut stream = LingeringClose::new(stream, |stream| stream, runtime, &unread);
    let mut received = Vec::new();
    let whole = loop {
        if let Some(end) = received.windows(4).position(|end| end == b"\r\n\r\n") {
            unread.head_read(body_follows(&received[..end]));
            break response(state, received.starts_with(b"HEAD "));
        }
        if received.len() > MAX_HEAD {
            break HEAD_TOO_LARGE.to_owned();
        }
        if stream.read_buf(&mut received).await? == 0 {
            return Ok(());
        }
    };
    stream.write_all(whole.as_bytes()).await?;
    stream.shutdown().await
}

/// Reports whether a body follows this head.
fn body_follows(head: &[u8]) -> bool {
    head.split(|byte| *byte == b'\n').any(|line| {
        let name = line.split(|byte| *byte == b':').next().unwrap_or_default();
        name.eq_ignore_ascii_case(b"content-length") || name.eq_ignore_ascii_case(b"transfer-encoding")
    })
}

fn response(state: &State, head_only: bool) -> String {
    let endpoints = state.endpoints.load(Ordering::Relaxed);
    let healthy = state.healthy.load(Ordering::Relaxed);
    let (namespace, name) = state.service.split_once('/').unwrap_or_default();
    let (namespace, name) = (Value::from(namespace), Value::from(name));
    let body = format!(
        "{{\n\t\"service\": {{\n\t\t\"namespace\": {namespace},\n\t\t\"name\": {name}\n\t}},\n\t\"localEndpoints\": {endpoints},\n\t\
         \"serviceProxyHealthy\": {healthy}\n}}"
    );
    let status = if endpoints > 0 && healthy {
        "200 OK"
    } else {
        "503 Service Unavailable"
    };
    let length = body.len();
    let body = if head_only { "" } else { &body };
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nX-Content-Type-Options: nosniff\r\n\
         X-Load-Balancing-Endpoint-Weight: {endpoints}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NodePortAddress;

    #[tokio::test]
    async fn health_port_answers_as_upstream_does() {
        let free = TcpListener::bind("0.0.0.0:0")
            .await
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        let runtime = Runtime::real();
        let scope = runtime.child_scope();
        let mut ports = HealthPorts::new(
            scope.runtime().clone(),
            NodePortAddresses::default(),
            Arc::new(|_, _, _| {}),
        );
        let service: Arc<str> = Arc::from("ns/web");
        ports.set(&service, Some(free), 2);
        let ask = || async {
            let mut stream = loop {
                match TcpStream::connect(("127.0.0.1", free)).await {
                    Ok(stream) => break stream,
                    Err(_) => tokio::task::yield_now().await,
                }
            };
            stream
                .write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
                .await
                .unwrap();
            let mut text = String::new();
            stream.read_to_string(&mut text).await.unwrap();
            text
        };
        let text = ask().await;
        assert!(text.starts_with("HTTP/1.1 200 OK\r\n"), "{text}");
        assert!(text.contains("X-Load-Balancing-Endpoint-Weight: 2\r\n"), "{text}");
        let body = "{\n\t\"service\": {\n\t\t\"namespace\": \"ns\",\n\t\t\"name\": \"web\"\n\t},\n\t\"localEndpoints\": 2,\n\t\
                    \"serviceProxyHealthy\": true\n}";
        assert!(text.ends_with(body), "{text}");
        ports.set(&service, Some(free), 0);
        assert!(ask().await.starts_with("HTTP/1.1 503 Service Unavailable\r\n"));
        ports.set(&service, Some(free), 1);
        ports.set_healthy(false);
        assert!(ask().await.contains("\"serviceProxyHealthy\": false"));
        ports.set(&service, None, 0);
        while TcpStream::connect(("127.0.0.1", free)).await.is_ok() {
            tokio::task::yield_now().await;
        }
    }

    /// A tenant makes as many ports as there are node ports.
    #[tokio::test]
    async fn health_ports_have_their_connections_together() {
        let scope = Runtime::real().child_scope();
        let none = NodePortAddresses::new(&[], None);
        let mut ports = HealthPorts::new(scope.runtime().clone(), none, Arc::new(|_, _, _| {}));
        for at in 0..100 {
            ports.set(&Arc::from(format!("ns/s{at}")), Some(30_000 + at), 1);
        }
        let of_ports = Arc::strong_count(&ports.places) - 1;
        assert_eq!(of_ports, ports.services.len());
    }

    #[tokio::test]
    async fn health_port_reads_on_behind_an_early_answer() {
        let runtime = Runtime::real();
        let state = State {
            service: Arc::from("ns/web"),
            endpoints: Arc::new(AtomicUsize::new(1)),
            healthy: Arc::new(AtomicBool::new(true)),
            addresses: Arc::default(),
            places: ConnectionSlots::new(MAX_CONNECTIONS),
        };
        // More than the buffers of two sockets hold.
        let body = vec![b'x'; 16 << 20];
        for (head, expected) in [
            (
                "POST / HTTP/1.1\r\nContent-Length: 16777216\r\n\r\n",
                "HTTP/1.1 200 OK\r\n",
            ),
            ("GET / HTTP/1.1\r\nCookie: ", "HTTP/1.1 431 "),
        ] {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let server = async {
                let (stream, _) = listener.accept().await.unwrap();
                let _ = answer(stream, &state, runtime.clone()).await;
            };
            let client = async {
                let mut stream = TcpStream::connect(address).await.unwrap();
                let sent = async {
                    stream.write_all(head.as_bytes()).await?;
                    stream.write_all(&body).await
                };
                sent.await.expect("all was taken");
                stream.shutdown().await.unwrap();
                let mut text = String::new();
                stream.read_to_string(&mut text).await.expect("an answer");
                text
            };
            let text = tokio::join!(server, client).1;
            assert!(text.starts_with(expected), "{text}");
        }
    }

    #[tokio::test]
    async fn health_port_that_is_taken_is_reported_once_and_served_later() {
        let taken = TcpListener::bind("0.0.0.0:0").await.unwrap();
        let number = taken.local_addr().unwrap().port();
        let runtime = Runtime::real();
        let scope = runtime.child_scope();
        let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
        let failed = move |service: &str, address, error: &io::Error| {
            let _ = tell.send((service.to_owned(), address, error.kind()));
        };
        let addresses = NodePortAddresses::new(&[NodePortAddress::Localhost], None);
        let mut ports = HealthPorts::new(scope.runtime().clone(), addresses, Arc::new(failed));
        let service: Arc<str> = Arc::from("ns/web");
        ports.set(&service, Some(number), 2);
        let local = SocketAddrV4::new([127, 0, 0, 1].into(), number);
        let expected = ("ns/web".to_owned(), local, io::ErrorKind::AddrInUse);
        assert_eq!(told.recv().await, Some(expected));
        runtime.sleep(RETRY * 2).await;
        assert!(told.try_recv().is_err(), "every attempt is no news");
        drop(taken);
        while TcpStream::connect(("127.0.0.1", number)).await.is_err() {
            tokio::task::yield_now().await;
        }
    }
}
