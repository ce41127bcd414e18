//! Extenders that answer, that fail, and that mean ill, over real connections.

use super::call::Extender;
use super::consult::Consultants;
use super::preempting::Proposal;
use super::{About, Answer, Question, Verdict};
use crate::config::{API_VERSION, Configuration, ExtenderConfig};
use crate::pod::PodInfo;
use crate::tests::make_pod;
use machinery_client::Client;
use machinery_runtime::Runtime;
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

type Answers = Arc<Vec<(&'static str, String)>>;

/// A server that gives the answers by path, and the requests that it received. Unknown paths stay unanswered.
struct Peer {
    port: u16,
    questions: Arc<Mutex<Vec<(String, Value)>>>,
}

impl Peer {
    async fn start(answers: Vec<(&'static str, String)>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let questions = Arc::new(Mutex::new(Vec::new()));
        let (kept, answers) = (Arc::clone(&questions), Arc::new(answers));
        Runtime::real()
            .spawn("peer", async move {
                while let Ok((stream, _)) = listener.accept().await {
                    let serving = serve(stream, Arc::clone(&answers), Arc::clone(&kept));
                    Runtime::real().spawn("peer connection", serving).detach();
                }
            })
            .detach();
        Self { port, questions }
    }

    fn questions_of(&self, verb: &str) -> Vec<Value> {
        let all = self.questions.lock().unwrap();
        let own = all.iter().filter(|(path, _)| path.ends_with(verb));
        own.map(|(_, question)| question.clone()).collect()
    }

    fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    async fn consultants(&self, extenders: Value) -> Consultants {
        let runtime = Runtime::real();
        let text = json!({"apiVersion": "v1", "kind": "Config", "current-context": "c", "users": [{"name": "u", "user": {}}],
            "clusters": [{"name": "c", "cluster": {"server": self.url()}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}]});
        let client = Client::from_kubeconfig_text(&text.to_string(), runtime.clone())
            .await
            .unwrap();
        let mut all = Vec::new();
        for config in configs(&self.url(), extenders) {
            all.push(Extender::new(&config, &runtime).await);
        }
        Consultants::over(client, all)
    }
}

fn configs(url: &str, mut extenders: Value) -> Vec<ExtenderConfig> {
    for own in extenders.as_array_mut().unwrap() {
        if own["urlPrefix"].is_null() {
            own["urlPrefix"] = format!("{url}/e/").into();
        }
        if own["nodeCacheCapable"].is_null() {
            own["nodeCacheCapable"] = true.into();
        }
    }
    let document =
        json!({"apiVersion": API_VERSION, "kind": "KubeSchedulerConfiguration", "extenders": extenders});
    Configuration::read(&document).unwrap().extenders
}

async fn serve(stream: TcpStream, answers: Answers, kept: Arc<Mutex<Vec<(String, Value)>>>) {
    let mut stream = BufReader::new(stream);
    loop {
        let (mut path, mut length) = (String::new(), 0);
        loop {
            let mut line = String::new();
            if stream.read_line(&mut line).await.unwrap_or(0) == 0 {
                return;
            }
            if line == "\r\n" {
                break;
            }
            if path.is_empty() {
                line.split(' ').nth(1).unwrap().clone_into(&mut path);
            }
            if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
        }
        let mut body = vec![0; length];
        stream.read_exact(&mut body).await.unwrap();
        kept.lock()
            .unwrap()
            .push((path.clone(), serde_json::from_slice(&body).unwrap_or_default()));
        let Some((_, answer)) = answers.iter().find(|(own, _)| *own == path) else {
            continue;
        };
        let (code, answer) = match answer.strip_prefix('!') {
            Some(code) => (code, ""),
            None => ("200", answer.as_str()),
        };
        let head = format!(
            "HTTP/1.1 {code} X\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            answer.len()
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        stream.write_all(answer.as_bytes()).await.unwrap();
    }
}

fn with_pod(answers: &[(&'static str, Value)]) -> Vec<(&'static str, String)> {
    let pod = ("/api/v1/namespaces/ns/pods/p", json!({"metadata": {"name": "p"}}));
    let all = answers.iter().chain([&pod]);
    all.map(|(path, answer)| {
        (
            *path,
            answer.as_str().map_or_else(|| answer.to_string(), str::to_owned),
        )
    })
    .collect()
}

fn pod() -> Arc<PodInfo> {
    make_pod("p", json!({}))
}

async fn about_nodes(consultants: &Consultants, nominated: Option<&str>) -> Result<Verdict, String> {
    let question = Question {
        pod: pod(),
        about: About::Nodes {
            nominated: nominated.map(Into::into),
            nodes: ["a", "b", "c"].map(Into::into).into(),
        },
    };
    match consultants.ask(question).await {
        Answer::Nodes(answer) => answer,
        Answer::Victims(_) => panic!("about nodes"),
    }
}

fn names(verdict: &Verdict) -> Vec<&str> {
    verdict.scores.keys().map(|name| &**name).collect()
}

#[tokio::test]
async fn extenders_filter_one_after_the_other_and_rate_together() {
    let peer = Peer::start(with_pod(&[
        (
            "/e/first",
            json!({"NodeNames": ["a", "c"], "FailedNodes": {"b": "full"}}),
        ),
        ("/e/second", json!({"nodenames": ["c", "a"]})),
        (
            "/e/rate",
            json!([{"Host": "a", "Score": 3}, {"Host": "z", "Score": 9}]),
        ),
        ("/e/fails", json!("!500")),
    ]))
    .await;
    let extenders = json!([
        {"filterVerb": "first", "prioritizeVerb": "rate", "weight": 2},
        {"filterVerb": "second", "prioritizeVerb": "fails", "weight": 1}]);
    let consultants = peer.consultants(extenders).await;
    let verdict = about_nodes(&consultants, None).await.unwrap();
    assert_eq!(names(&verdict), ["a", "c"]);
    assert_eq!(verdict.scores["a"], 60);
    assert_eq!(verdict.scores["c"], 0);
    assert_eq!(verdict.rejected["b"].reasons, ["full"]);
    assert!(!verdict.rejected["b"].unresolvable);
    let question = &peer.questions_of("first")[0];
    assert_eq!(question["Pod"]["metadata"]["name"], "p");
    assert_eq!(question["NodeNames"], json!(["a", "b", "c"]));
    assert_eq!(question["Nodes"], Value::Null);
    assert_eq!(peer.questions_of("second")[0]["NodeNames"], json!(["a", "c"]));
}

#[tokio::test]
async fn extenders_are_asked_about_the_promised_node_first() {
    let peer = Peer::start(with_pod(&[("/e/filter", json!({"NodeNames": ["b"]}))])).await;
    let consultants = peer.consultants(json!([{"filterVerb": "filter"}])).await;
    let verdict = about_nodes(&consultants, Some("b")).await.unwrap();
    assert_eq!(names(&verdict), ["b"]);
    assert_eq!(peer.questions_of("filter").len(), 1);
    // An answer that leaves it out, or cannot be used, counts for nothing.
    let verdict = about_nodes(&consultants, Some("a")).await.unwrap();
    assert_eq!(names(&verdict), ["b"]);
    assert_eq!(peer.questions_of("filter").len(), 3);
}

#[track_caller]
fn check(answer: &Result<Verdict, String>, words: &str) {
    let why = answer.as_ref().unwrap_err();
    assert!(why.ends_with(words), "{why}");
}

#[tokio::test]
async fn extender_that_means_ill_is_an_error_and_no_more() {
    let long = "x".repeat(3 << 20);
    let peer = Peer::start(with_pod(&[
        ("/e/stranger", json!({"NodeNames": ["a", "other"]})),
        ("/e/error", json!({"Error": "y".repeat(5000)})),
        ("/e/refuses", json!("!403")),
        ("/e/nonsense", json!("{\"NodeNames\": 3}")),
        ("/e/long", json!(long)),
    ]))
    .await;
    let mut failed = Vec::new();
    for verb in ["stranger", "error", "refuses", "nonsense", "long", "silent"] {
        let extender =
            json!([{"filterVerb": verb, "httpTimeout": if verb == "silent" { "100ms" } else { "60s" }}]);
        failed.push(about_nodes(&peer.consultants(extender).await, None).await);
    }
    check(
        &failed[0],
        "claims a filtered node \"other\" which is not found in the input node list",
    );
    assert_eq!(failed[1].as_ref().unwrap_err().len(), 1024);
    let url = peer.url();
    check(
        &failed[2],
        &format!("failed refuses with extender at URL {url}/e/refuses, code 403"),
    );
    check(&failed[3], "expected a sequence at line 1 column 1");
    check(&failed[4], "bytes");
    check(
        &failed[5],
        "/e/silent\": context deadline exceeded (Client.Timeout exceeded while awaiting headers)",
    );
    // One that may fail is passed over; none of the nodes is lost.
    for verb in ["stranger", "error", "refuses", "nonsense", "long"] {
        let extender = json!([{"filterVerb": verb, "ignorable": true}]);
        let verdict = about_nodes(&peer.consultants(extender).await, None)
            .await
            .unwrap();
        assert_eq!(names(&verdict), ["a", "b", "c"], "{verb}");
    }
}

#[tokio::test]
async fn extender_that_is_not_there_is_named_as_go_names_it() {
    let peer = Peer::start(with_pod(&[])).await;
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = closed.local_addr().unwrap().port();
    drop(closed);
    let url = format!("http://127.0.0.1:{port}");
    let consultants = peer
        .consultants(json!([{"urlPrefix": url, "filterVerb": "filter"}]))
        .await;
    check(
        &about_nodes(&consultants, None).await,
        &format!("Post \"{url}/filter\": dial tcp 127.0.0.1:{port}: connect: connection refused"),
    );
    let consultants = peer
        .consultants(json!([{"urlPrefix": "ftp://e", "filterVerb": "filter"}]))
        .await;
    check(
        &about_nodes(&consultants, None).await,
        "Post \"ftp://e/filter\": unsupported protocol scheme \"ftp\"",
    );
}

#[tokio::test]
async fn extender_gives_few_reasons_of_bounded_length() {
    let reasons: Value = (0..3)
        .map(|at| (["a", "b", "c"][at].to_owned(), json!("r".repeat(2000 + at))))
        .collect::<serde_json::Map<_, _>>()
        .into();
    let answer =
        json!({"FailedAndUnresolvableNodes": reasons, "FailedNodes": {"a": "other", "unknown": "x"}});
    let peer = Peer::start(with_pod(&[("/e/filter", answer)])).await;
    let consultants = peer.consultants(json!([{"filterVerb": "filter"}])).await;
    let verdict = about_nodes(&consultants, None).await.unwrap();
    assert_eq!(verdict.rejected.len(), 3);
    assert!(
        verdict
            .rejected
            .values()
            .all(|own| own.unresolvable && own.reasons[0].len() == 1024)
    );
}

#[tokio::test]
async fn extender_binds_in_place_of_the_scheduler() {
    let peer = Peer::start(with_pod(&[
        ("/e/bind", json!({})),
        ("/e/wrong", json!({"Error": "no"})),
    ]))
    .await;
    let bind = async |extenders: Value| peer.consultants(extenders).await.bind(&pod(), "a").await;
    assert_eq!(bind(json!([{"bindVerb": "bind"}])).await, Some(Ok(())));
    let question = json!({"PodName": "p", "PodNamespace": "ns", "PodUID": "p", "Node": "a"});
    assert_eq!(peer.questions_of("bind"), [question]);
    assert_eq!(
        bind(json!([{"bindVerb": "wrong"}])).await,
        Some(Err("no".to_owned()))
    );
    assert_eq!(
        bind(json!([{"bindVerb": "wrong", "ignorable": true}])).await,
        None
    );
    assert_eq!(bind(json!([{"filterVerb": "filter"}])).await, None);
    let managed = json!([{"bindVerb": "bind", "managedResources": [{"name": "a.b/c"}]}]);
    assert_eq!(bind(managed).await, None);
}

async fn about_victims(consultants: &Consultants) -> Result<Vec<Proposal>, String> {
    let on_node: Arc<[Arc<PodInfo>]> = [make_pod("v", json!({})), make_pod("w", json!({}))].into();
    let proposal = |node: &str| Proposal {
        node: node.into(),
        victims: vec![Arc::clone(&on_node[0])],
        violations: 1,
        on_node: Arc::clone(&on_node),
    };
    let question = Question {
        pod: pod(),
        about: About::Victims(vec![proposal("a"), proposal("b")]),
    };
    match consultants.ask(question).await {
        Answer::Victims(answer) => answer,
        Answer::Nodes(_) => panic!("about victims"),
    }
}

#[tokio::test]
async fn extender_chooses_victims() {
    let victim = |uid: &str| json!({"Pods": [{"UID": uid}], "NumPDBViolations": 2});
    let peer = Peer::start(with_pod(&[
        ("/e/preempt", json!({"NodeNameToMetaVictims": {"b": victim("w")}})),
        (
            "/e/stranger",
            json!({"NodeNameToMetaVictims": {"b": victim("x")}}),
        ),
        (
            "/e/elsewhere",
            json!({"NodeNameToMetaVictims": {"z": victim("w")}}),
        ),
        ("/e/nobody", json!({"NodeNameToMetaVictims": {"b": {}}})),
        ("/api/v1/namespaces/ns/pods/v", json!({"metadata": {"name": "v"}})),
    ]))
    .await;
    let ask = async |extender: Value| about_victims(&peer.consultants(json!([extender])).await).await;
    let left = ask(json!({"preemptVerb": "preempt"})).await.unwrap();
    assert_eq!(
        (&*left[0].node, left[0].victims[0].uid(), left[0].violations),
        ("b", "w", 2)
    );
    let by_uid = json!({"a": {"Pods": [{"UID": "v"}], "NumPDBViolations": 1}, "b": {"Pods": [{"UID": "v"}], "NumPDBViolations": 1}});
    assert_eq!(peer.questions_of("preempt")[0]["NodeNameToMetaVictims"], by_uid);
    ask(json!({"preemptVerb": "preempt", "nodeCacheCapable": false}))
        .await
        .unwrap();
    let in_full = &peer.questions_of("preempt")[1];
    assert_eq!(
        in_full["NodeNameToVictims"]["b"]["Pods"],
        json!([{"metadata": {"name": "v"}}])
    );
    assert_eq!(in_full["NodeNameToMetaVictims"], Value::Null);
    let url = peer.url();
    assert_eq!(
        ask(json!({"preemptVerb": "stranger"})).await.unwrap_err(),
        format!(
            "extender: {url}/e/ claims to preempt pod (UID: &{{x}}) on node: b, but the pod is not found on that node"
        )
    );
    assert_eq!(
        ask(json!({"preemptVerb": "elsewhere"})).await.unwrap_err(),
        "nodeinfo not found for node name \"z\""
    );
    assert_eq!(
        ask(json!({"preemptVerb": "nobody"})).await.unwrap_err(),
        "expected at least one victim pod on node \"b\""
    );
    assert!(
        ask(json!({"preemptVerb": "nobody", "ignorable": true}))
            .await
            .unwrap()
            .is_empty()
    );
    assert_eq!(
        ask(json!({"preemptVerb": "stranger", "ignorable": true}))
            .await
            .unwrap()
            .len(),
        2
    );
}
