"""What a Python program does with a cluster; every step is an assertion. KUBECONFIG says where."""

from kubernetes import client, config, watch
from kubernetes.client.exceptions import ApiException

config.load_kube_config()
core, apps, custom = client.CoreV1Api(), client.AppsV1Api(), client.CustomObjectsApi()


def refused(code, call, *arguments, **options):
    try:
        call(*arguments, **options)
    except ApiException as error:
        assert error.status == code, f"{error.status} instead of {code}: {error.body}"
        return error
    raise AssertionError(f"{call.__name__} was not refused with {code}")


def maps_and_watch():
    name, namespace = "story", "default"
    meta = client.V1ObjectMeta(name=name, labels={"told": "yes"})
    made = core.create_namespaced_config_map(namespace, client.V1ConfigMap(metadata=meta, data={"a": "1"}))
    refused(409, core.create_namespaced_config_map, namespace, client.V1ConfigMap(metadata=meta))
    since = made.metadata.resource_version
    patched = core.patch_namespaced_config_map(name, namespace, {"data": {"b": "2"}})
    assert patched.data == {"a": "1", "b": "2"}, patched.data
    json_patch = [{"op": "remove", "path": "/data/a"}]
    assert core.patch_namespaced_config_map(name, namespace, json_patch).data == {"b": "2"}
    stale = client.V1ConfigMap(metadata=client.V1ObjectMeta(name=name, resource_version=since), data={})
    refused(409, core.replace_namespaced_config_map, name, namespace, stale)
    listed = core.list_namespaced_config_map(namespace, label_selector="told=yes")
    assert [item.metadata.name for item in listed.items] == [name]
    core.delete_namespaced_config_map(name, namespace)
    refused(404, core.read_namespaced_config_map, name, namespace)
    told = []
    stream = watch.Watch()
    for event in stream.stream(core.list_namespaced_config_map, namespace, resource_version=since, timeout_seconds=60):
        told.append((event["type"], event["object"].data))
        if event["type"] == "DELETED":
            stream.stop()
    assert told == [("MODIFIED", {"a": "1", "b": "2"}), ("MODIFIED", {"b": "2"}), ("DELETED", {"b": "2"})], told


def a_deployment():
    labels = {"app": "web"}
    container = client.V1Container(name="web", image="example/web:1")
    template = client.V1PodTemplateSpec(metadata=client.V1ObjectMeta(labels=labels),
                                        spec=client.V1PodSpec(containers=[container]))
    spec = client.V1DeploymentSpec(replicas=2, selector=client.V1LabelSelector(match_labels=labels), template=template)
    apps.create_namespaced_deployment(
        "default", client.V1Deployment(metadata=client.V1ObjectMeta(name="web"), spec=spec))
    stream, pods = watch.Watch(), set()
    for event in stream.stream(core.list_namespaced_pod, "default", label_selector="app=web", timeout_seconds=60):
        pods.add(event["object"].metadata.name)
        if len(pods) == 2:
            stream.stop()
    assert len(pods) == 2, pods
    scale = apps.patch_namespaced_deployment_scale("web", "default", {"spec": {"replicas": 1}})
    assert scale.spec.replicas == 1
    refused(422, apps.patch_namespaced_deployment, "web", "default", {"spec": {"replicas": -1}})
    apps.delete_namespaced_deployment("web", "default", propagation_policy="Foreground")


def a_custom_kind():
    kinds = client.ApiextensionsV1Api()
    schema = {"type": "object", "properties": {"spec": {"type": "object", "properties": {"oars": {"type": "integer"}}}}}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {"plural": "boats", "singular": "boat", "kind": "Boat", "listKind": "BoatList"}
    spec = {"group": "knarr.test", "scope": "Namespaced", "names": names, "versions": [version]}
    kinds.create_custom_resource_definition({"metadata": {"name": "boats.knarr.test"}, "spec": spec})
    stream = watch.Watch()
    for event in stream.stream(kinds.list_custom_resource_definition, timeout_seconds=60):
        conditions = event["object"].status.conditions or []
        if any(one.type == "Established" and one.status == "True" for one in conditions):
            stream.stop()
    place = ("knarr.test", "v1", "default", "boats")
    boat = {"apiVersion": "knarr.test/v1", "kind": "Boat", "metadata": {"name": "ormen"}, "spec": {"oars": 34}}
    custom.create_namespaced_custom_object(*place, boat)
    bad = {**boat, "metadata": {"name": "bad"}, "spec": {"oars": "many"}}
    refused(422, custom.create_namespaced_custom_object, *place, bad)
    assert custom.list_namespaced_custom_object(*place)["items"][0]["spec"] == {"oars": 34}
    custom.delete_namespaced_custom_object(*place, "ormen")
    kinds.delete_custom_resource_definition("boats.knarr.test")


assert client.VersionApi().get_code().minor == "37"
maps_and_watch()
a_deployment()
a_custom_kind()
print("all told")
