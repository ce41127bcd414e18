//! Health check ports of services with `externalTrafficPolicy: Local`: a balancer asks each node whether the service
//! has an endpoint there.

use crate::NodePortAddresses;
use machinery_runtime::{ConnectionSlots, Runtime, Scope};
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
/// Connections of one port at a time; the oldest of the address that has the most gives way.
const MAX_CONNECTIONS: usize = 64;
/// Between attempts to listen, and after a connection that could not be accepted.
const RETRY: Duration = Duration::from_secs(1);

/// The ports that are served.
pub(crate) struct HealthPorts {
    services: BTreeMap<Arc<str>, Port>,
    /// Whether the rules in the kernel are those that should be there.
    healthy: Arc<AtomicBool>,
    addresses: Arc<NodePortAddresses>,
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
}

async fn listen(port: u16, state: Arc<State>, failed: Failed, runtime: Runtime) {
    let places = ConnectionSlots::new(MAX_CONNECTIONS);
    let mut was_told = false;
    loop {
        match bind_all(port, &state.addresses).await {
            Ok(listeners) => {
                let serving = listeners.iter().map(|own| serve(own, &state, &places, &runtime));
                futures::future::join_all(serving).await;
            }
            Err((address, error)) if !std::mem::replace(&mut was_told, true) => {
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

async fn serve(listener: &TcpListener, state: &Arc<State>, places: &Arc<ConnectionSlots>, runtime: &Runtime) {
    loop {
        let Ok((stream, address)) = listener.accept().await else {
            runtime.sleep(RETRY).await;
            continue;
        };
        let place = places.enter(address.ip());
        let (state, inside) = (Arc::clone(state), runtime.clone());
        let answer = async move {
            let answer = inside.timeout(PATIENCE, answer(stream, &state));
            let _ = place.closing.run_until_cancelled(answer).await;
        };
        runtime.spawn_request("service health answer", answer).detach();
    }
}

/// Any request gets the same answer, as upstream's.
async fn answer(mut stream: TcpStream, state: &State) -> io::Result<()> {
    let mut head = Vec::new();
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        let read = stream.read_buf(&mut head).await?;
        if read == 0 || head.len() > MAX_HEAD {
            return Ok(());
        }
    }
    let whole = response(state, head.starts_with(b"HEAD "));
    stream.write_all(whole.as_bytes()).await?;
    stream.shutdown().await
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
