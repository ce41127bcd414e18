//! Static pods of a URL: cases of upstream's `http_test.go`, and servers that mean no good.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use machinery_runtime::Runtime;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpListener;

use crate::pods::{CONFIG_HASH, name, namespace, spec, uid};
use crate::static_pods::fetching::{BODY_BYTES_MAX, Target, fetch};
use crate::static_pods::url::{DEFAULT_PERIOD, Look, StaticPodUrl, UrlPods};

fn decode(content: &[u8]) -> Result<Value, String> {
    serde_json::from_slice(content).map_err(|error| error.to_string())
}

fn source(url: &str, headers: &[(&str, &str)]) -> StaticPodUrl {
    StaticPodUrl {
        url: url.to_owned(),
        headers: headers
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect(),
        period: DEFAULT_PERIOD,
        decode,
    }
}

fn url_pods() -> UrlPods {
    UrlPods::new(source("http://pods.test/list", &[]), "Node-1".to_owned()).unwrap()
}

fn pod(name: &str, rest: Value) -> Value {
    let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {"containers": [{"name": "main", "image": "tools:1"}]}});
    if let (Value::Object(metadata), Value::Object(own)) = (&mut pod["metadata"], rest) {
        metadata.extend(own);
    }
    pod
}

fn read(value: &Value) -> Result<Vec<Arc<Pod>>, String> {
    match url_pods().read(value.to_string().as_bytes())? {
        Look::Pods(pods) => Ok(pods),
        Look::Unchanged => panic!("it was never read"),
    }
}

#[test]
fn url_pods_are_one_or_a_list() {
    let one = read(&pod("foo", json!({"uid": "111", "namespace": "mynamespace"}))).unwrap();
    assert_eq!(
        (name(&one[0]), namespace(&one[0]), uid(&one[0])),
        ("foo-node-1", "mynamespace", "111")
    );
    let annotations = one[0].metadata.annotations.as_ref().unwrap();
    assert_eq!(annotations[CONFIG_HASH], "111");
    assert_eq!(annotations["kubernetes.io/config.source"], "http");
    let own = spec(&one[0]);
    assert_eq!(own.node_name.as_deref(), Some("Node-1"));
    assert_eq!(own.termination_grace_period_seconds, Some(30));
    assert_eq!(own.tolerations, None, "pods of files alone get one");
    let (mut first, second) = (pod("foo", json!({})), pod("bar", json!({})));
    first.as_object_mut().unwrap().remove("kind");
    let list = json!({"apiVersion": "v1", "kind": "PodList", "items": [first, second]});
    let names: Vec<String> = read(&list)
        .unwrap()
        .iter()
        .map(|pod| name(pod).to_owned())
        .collect();
    assert_eq!(names, ["foo-node-1", "bar-node-1"]);
    let none = json!({"apiVersion": "v1", "kind": "PodList", "items": []});
    assert!(read(&none).unwrap().is_empty());
}

#[test]
fn url_pods_that_are_none_are_refused_with_their_list() {
    let list = |items: Vec<Value>| json!({"apiVersion": "v1", "kind": "PodList", "items": items});
    let good = || pod("foo", json!({}));
    for (value, words) in [
        (
            json!({"kind": "Pod"}),
            "invalid pod: it is of kind \"Pod\" of \"\"",
        ),
        (
            json!({"apiVersion": "v1betta2", "kind": "Pod"}),
            "of \"v1betta2\"",
        ),
        (list(vec![good(), pod("", json!({}))]), "name is needed"),
        (
            list(vec![good(), good()]),
            "two pods of the name default/foo-node-1",
        ),
        (list(vec![good(); 513]), "more than 512 pods"),
        (
            json!({"apiVersion": "v1", "kind": "PodList", "items": {}}),
            "its items are no list",
        ),
        (
            json!({"apiVersion": "v1", "kind": "Secret"}),
            "it is of kind \"Secret\"",
        ),
        (json!("text"), "invalid pod"),
        (Value::Null, "invalid pod"),
    ] {
        let why = read(&value).unwrap_err();
        assert!(why.contains(words), "{why}\nexpected {words}");
    }
}

#[test]
fn url_pods_are_read_again_when_the_answer_differs() {
    let mut pods = url_pods();
    let body = |name: &str| pod(name, json!({})).to_string().into_bytes();
    assert!(matches!(pods.read(&body("a")), Ok(Look::Pods(_))));
    assert_eq!(pods.read(&body("a")), Ok(Look::Unchanged));
    let why = pods.read(b"{").unwrap_err();
    assert_eq!(pods.read(b"{"), Err(why), "it is no success the second time");
    assert!(matches!(pods.read(&body("a")), Ok(Look::Pods(_))));
}

#[test]
fn url_pods_source_is_checked_and_keeps_its_secrets() {
    let good = source(
        "https://user:secret@pods.test:8443/a?b=c@d",
        &[("token", "secret")],
    );
    assert_eq!(good.problems(), Vec::<String>::new());
    assert_eq!(good.shown(), "https://pods.test:8443/a?b=c@d");
    assert!(!format!("{good:?}").contains("secret"));
    for (url, headers, words) in [
        ("pods.test/list", vec![], "--manifest-url"),
        ("ftp://pods.test/", vec![], "unsupported protocol scheme \"ftp\""),
        (
            "http://pods.test/",
            vec![("a b", "c")],
            "--manifest-url-header: \"a b\"",
        ),
        (
            "http://pods.test/",
            vec![("a", "b\nc")],
            "--manifest-url-header: \"a\"",
        ),
    ] {
        let problems = source(url, &headers).problems().join("; ");
        assert!(problems.contains(words), "{problems}\nexpected {words}");
    }
    let mut hurried = source("http://pods.test/", &[]);
    hurried.period = Duration::from_millis(1);
    assert_eq!(
        hurried.problems(),
        ["--http-check-frequency: must be at least 1s"]
    );
}

/// A server with one answer for each path, and the requests that it had.
struct Server {
    url: String,
    requests: Arc<Mutex<Vec<String>>>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Server {
    #[expect(clippy::disallowed_methods, reason = "a server of a test, beside the runtime")]
    async fn new(answer: impl Fn(&str) -> Vec<u8> + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let requests: Arc<Mutex<Vec<String>>> = Arc::default();
        let seen = requests.clone();
        let task = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let mut stream = BufReader::new(stream);
                let mut head = String::new();
                while !head.ends_with("\r\n\r\n") && stream.read_line(&mut head).await.unwrap_or(0) > 0 {}
                let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
                seen.lock().push(head);
                // A client that has enough closes the connection.
                let _ = stream.write_all(&answer(&path)).await;
                let _ = stream.shutdown().await;
            }
        });
        Self { url, requests, task }
    }

    async fn get(&self, path: &str, headers: &[(String, String)]) -> Result<Vec<u8>, String> {
        let target = Target::parse(&format!("{}{path}", self.url)).unwrap();
        let body = fetch(&Runtime::real(), &target, headers).await;
        body.map(|body| body.to_vec())
    }
}

fn answer(status: &str, rest: &str) -> Vec<u8> {
    format!("HTTP/1.1 {status}\r\nconnection: close\r\n{rest}").into_bytes()
}

#[tokio::test]
async fn url_is_read_with_its_headers_and_other_answers_are_errors() {
    let server = Server::new(|path| match path {
        "/pods?a=b" => answer("200 OK", "content-length: 4\r\n\r\npods"),
        "/moved" => answer("302 Found", "location: /pods?a=b\r\ncontent-length: 0\r\n\r\n"),
        "/lost" => answer("302 Found", "content-length: 0\r\n\r\n"),
        "/round" => answer("307 Again", "location: round\r\ncontent-length: 0\r\n\r\n"),
        "/short" => answer("200 OK", "content-length: 40\r\n\r\npods"),
        "/large" => {
            let mut large = answer("200 OK", "\r\n");
            large.resize(large.len() + BODY_BYTES_MAX + 1, b' ');
            large
        }
        _ => answer("404 Missing", "content-length: 4\r\n\r\npods"),
    });
    let server = server.await;
    let headers = vec![
        ("Metadata-Flavor".to_owned(), "Google".to_owned()),
        ("Host".to_owned(), "other.test".to_owned()),
        ("a".to_owned(), "1".to_owned()),
        ("a".to_owned(), "2".to_owned()),
    ];
    assert_eq!(server.get("/moved", &headers).await.unwrap(), b"pods");
    let requests = std::mem::take(&mut *server.requests.lock());
    assert_eq!(requests.len(), 2);
    for request in requests {
        let request = request.to_ascii_lowercase();
        let host = server.url.trim_start_matches("http://");
        for line in [
            "metadata-flavor: google",
            &format!("host: {host}"),
            "a: 1",
            "a: 2",
        ] {
            let lines = request.lines().filter(|own| own == &line);
            assert_eq!(lines.count(), 1, "{line}: {request}");
        }
    }
    for (path, words) in [
        ("/other", "/other: 404 Not Found"),
        ("/lost", "302 response missing Location header"),
        ("/round", "stopped after 10 redirects"),
        ("/short", "reading"),
        ("/large", "length limit exceeded"),
    ] {
        let why = server.get(path, &[]).await.unwrap_err();
        assert!(why.contains(words), "{why}\nexpected {words}");
    }
    assert_eq!(server.requests.lock().len(), 14, "ten of them went round");
}

#[tokio::test]
async fn url_without_an_answer_leaves_pods_and_an_empty_one_has_none() {
    let answers = Arc::new(Mutex::new(vec![
        answer("200 OK", "content-length: 0\r\n\r\n"),
        answer("500 Broken", "content-length: 0\r\n\r\n"),
    ]));
    let server = Server::new(move |_| answers.lock().pop().unwrap_or_default()).await;
    let mut pods = UrlPods::new(source(&server.url, &[]), "n".to_owned()).unwrap();
    let runtime = Runtime::real();
    assert_eq!(pods.look(&runtime).await, None);
    assert_eq!(pods.look(&runtime).await, Some(Look::Pods(Vec::new())));
    assert_eq!(pods.look(&runtime).await, None);
}

#[tokio::test(start_paused = true)]
#[expect(clippy::disallowed_methods, reason = "a server of a test, beside the runtime")]
async fn url_that_trickles_is_given_up() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let target = format!("http://{}/", listener.local_addr().unwrap());
    let server = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let head = answer("200 OK", "content-length: 1000000\r\n\r\n");
        let _ = stream.write_all(&head).await;
        while stream.write_all(b" ").await.is_ok() {
            // A step of the paused clock: no time passes.
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    });
    let target = Target::parse(&target).unwrap();
    let why = fetch(&Runtime::real(), &target, &[]).await.unwrap_err();
    assert!(why.contains("context deadline exceeded"), "{why}");
    server.abort();
}
