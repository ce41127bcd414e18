use super::*;

const GOOD: &str = "
clusters:
- name: hook
  cluster: {server: 'https://hook.example/authn/', certificate-authority: ca.crt}
users:
- name: server
  user: {token: a-secret}
contexts:
- name: webhook
  context: {cluster: hook, user: server}
current-context: webhook
";

#[track_caller]
fn check(text: &str, expected: Result<&str, &str>) {
    let folder = tempfile::tempdir().unwrap();
    let ca = rcgen::generate_simple_self_signed(["hook.example".to_owned()]).unwrap();
    std::fs::write(folder.path().join("ca.crt"), ca.cert.pem()).unwrap();
    let path = folder.path().join("kubeconfig");
    std::fs::write(&path, text).unwrap();
    match (remote(&path, "timeout=30s"), expected) {
        (Ok(remote), Ok(url)) => assert_eq!(remote.url(), url),
        (Err(error), Err(why)) => {
            let error = error.to_string();
            assert!(error.contains(why), "{error}");
            assert!(!error.contains("a-secret"), "{error}");
        }
        (found, _) => panic!("{found:?}"),
    }
}

#[test]
fn kubeconfig_names_the_server_of_its_current_context() {
    check(GOOD, Ok("https://hook.example/authn?timeout=30s"));
    check(
        &GOOD.replace("certificate-authority: ca.crt", "insecure-skip-tls-verify: true"),
        Ok("https://hook.example/authn?timeout=30s"),
    );
    check(
        &GOOD.replace("https://hook.example/authn/", "hook:80"),
        Ok("https://hook:80/?timeout=30s"),
    );
    let plain = GOOD.replace(", certificate-authority: ca.crt", "");
    check(
        &plain.replace("https://hook.example/authn/", "hook:80"),
        Ok("http://hook:80/?timeout=30s"),
    );
    check(
        &plain.replace("https://hook.example/authn/", "hook:80/authn"),
        Err("host must be a URL or a host:port pair"),
    );
    for (from, to, why) in [
        ("current-context: webhook", "", "context \"\" does not exist"),
        (
            "cluster: hook,",
            "cluster: other,",
            "cluster \"other\" does not exist",
        ),
        ("user: server}", "user: other}", "user \"other\" does not exist"),
        (
            "server: 'https://hook.example/authn/', ",
            "",
            "no server found for cluster \"hook\"",
        ),
        ("ca.crt}", "missing}", "unable to read"),
        (
            "ca.crt}",
            "ca.crt, insecure-skip-tls-verify: true}",
            "insecure flag is not allowed",
        ),
        (
            "token: a-secret",
            "exec: {command: a-secret}",
            "exec and auth-provider",
        ),
        (
            "token: a-secret",
            "client-certificate-data: YQ==",
            "client-key-data or client-key",
        ),
        (
            "token: a-secret",
            "token: [a-secret]",
            "cannot be read as a kubeconfig",
        ),
        (
            "token: a-secret",
            "token: \"a-secret\\n\"",
            "cannot be in a header",
        ),
    ] {
        assert!(GOOD.contains(from), "{from}");
        check(&GOOD.replace(from, to), Err(why));
    }
}

#[test]
fn credentials_are_of_the_users_by_their_names() {
    const USERS: &str = "
users:
- name: '*.hooks.svc'
  user: {token: a-secret, as: anna, as-uid: '7', as-groups: [a, b], as-user-extra: {Key/of: [x, z]}}
- {name: broken.example, user: {client-certificate: gone.crt, client-key: gone.key}}
- {name: plugin.example, user: {exec: {command: x}}}
- {name: other, user: {username: u, password: p}}
contexts:
- {name: c, context: {user: other}}
current-context: c
";
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kubeconfig");
    std::fs::write(&path, USERS).unwrap();
    let all = webhook_credentials(&path).unwrap();
    let of = |host: &str| {
        let found = all.of(host).map(|own| own.headers);
        let headers = found.map_err(|why| why.replace(&folder.path().display().to_string(), ""));
        headers.map(|own| {
            let text = own
                .iter()
                .map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()));
            text.collect::<Vec<_>>()
        })
    };
    let expected = [
        "authorization: Bearer a-secret",
        "impersonate-user: anna",
        "impersonate-uid: 7",
        "impersonate-group: a",
        "impersonate-group: b",
        "impersonate-extra-key%2fof: x",
        "impersonate-extra-key%2fof: z",
    ];
    assert_eq!(of("own.hooks.svc:443").unwrap(), expected);
    assert_eq!(of("else.example:443").unwrap(), ["authorization: Basic dTpw"]);
    let why = of("broken.example:443").unwrap_err();
    assert!(why.starts_with("unable to read /gone.crt: "), "{why}");
    let why = "invalid configuration: exec and auth-provider are not supported for webhooks";
    assert_eq!(of("plugin.example:443").unwrap_err(), why);
    assert!(!format!("{all:?}").contains("secret"));
}
