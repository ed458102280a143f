#!/usr/bin/python3
"""Reads manifests of Kubernetes as Kubernetes would.

  pods.py check SCHEMA          fails if a manifest on standard input does not fit the schema
  pods.py list FOLDER           writes what each pod of the manifests needs into a folder of its own:
        names       its names, one a line; the first is its host name, the others are those of the
                    headless service
        environment its variables, for a shell; the address is $POD_IP, the secret is $SECRET
        command     its command, an argument a line
        directory   where it runs
        restarts    never more after success: OnFailure; or Always
        user        the number of its user
        volumes     a line each: where it is mounted, and what
"""
import json
import os
import shlex
import sys

import jsonschema
import yaml

KINDS = {"Job", "StatefulSet", "Service", "PersistentVolumeClaim"}


def read_documents():
    return [document for document in yaml.safe_load_all(sys.stdin) if document is not None]


def check(schema_file):
    with open(schema_file, encoding="utf-8") as file:
        schema = json.load(file)
    for document in read_documents():
        kind = document.get("kind")
        if kind not in KINDS:
            sys.exit(f"pods: {kind} is no kind that the schema has")
        validator = jsonschema.Draft7Validator(
            {"$ref": f"#/definitions/{kind}", "definitions": schema["definitions"]})
        faults = sorted(validator.iter_errors(document), key=lambda fault: list(fault.path))
        for fault in faults:
            where = "/".join(str(step) for step in fault.path)
            print(f"{kind} {document['metadata']['name']}: {where}: {fault.message}")
        if faults:
            sys.exit(1)


def find_field(path, index):
    """What the downward API says; status.podIP is known once the pod has a host."""
    if path == "status.podIP":
        return '"$POD_IP"'
    if path == "metadata.annotations['batch.kubernetes.io/job-completion-index']":
        return str(index)
    sys.exit(f"pods: there is no field {path}")


def find_variable(variable, index):
    if "value" in variable:
        return shlex.quote(variable["value"])
    source = variable["valueFrom"]
    if "fieldRef" in source:
        return find_field(source["fieldRef"]["fieldPath"], index)
    return '"$SECRET"'


def find_mount(volumes, mount):
    volume = next(volume for volume in volumes if volume["name"] == mount["name"])
    kind = "claim" if "persistentVolumeClaim" in volume else "empty"
    return f"{mount['mountPath']} {kind}"


def check_labels(workload, services):
    """A pod's names come from a service that selects it; a workload has the pods that it makes."""
    labels = workload["spec"]["template"]["metadata"]["labels"]
    subdomain = workload["spec"]["template"]["spec"].get("subdomain", workload["spec"].get("serviceName"))
    selector = workload["spec"].get("selector", {}).get("matchLabels", labels)
    if not selector.items() <= labels.items():
        sys.exit(f"pods: {workload['metadata']['name']} does not select its own pods")
    if subdomain is None:
        return None
    service = next((one for one in services if one["metadata"]["name"] == subdomain), None)
    if service is None or not service["spec"]["selector"].items() <= labels.items():
        sys.exit(f"pods: no service gives the pods of {workload['metadata']['name']} their names")
    if not service["spec"].get("publishNotReadyAddresses"):
        sys.exit(f"pods: {subdomain} names only pods that are ready, and they get ready by names")
    return subdomain


def write_pod(folder, workload, index, n_pods, services):
    spec = workload["spec"]["template"]["spec"]
    [container] = spec["containers"]
    name = workload["metadata"]["name"]
    numbered = workload["kind"] == "StatefulSet" or workload["spec"].get("completionMode") == "Indexed"
    pod = name if n_pods == 1 and not numbered else f"{name}-{index}"
    host = spec.get("hostname", pod)
    subdomain = check_labels(workload, services)
    names = [host] + ([f"{host}.{subdomain}"] if subdomain else [])
    pod_folder = os.path.join(folder, pod)
    files = {
        "names": names,
        "environment": [f"export {variable['name']}={find_variable(variable, index)}"
                        for variable in container["env"]],
        "command": container["command"],
        "directory": [container["workingDir"]],
        "restarts": [spec["restartPolicy"]],
        "user": [str(spec["securityContext"]["runAsUser"])],
        "volumes": [find_mount(spec["volumes"], mount) for mount in container["volumeMounts"]],
    }

    os.makedirs(pod_folder)
    for file_name, lines in files.items():
        with open(os.path.join(pod_folder, file_name), "w", encoding="utf-8") as file:
            file.write("".join(line + "\n" for line in lines))


def list_pods(folder):
    documents = read_documents()
    services = [document for document in documents if document["kind"] == "Service"]

    for workload in documents:
        if workload["kind"] in ("Job", "StatefulSet"):
            n_pods = workload["spec"].get("parallelism", workload["spec"].get("replicas", 1))
            for index in range(n_pods):
                write_pod(folder, workload, index, n_pods, services)


if __name__ == "__main__":
    {"check": check, "list": list_pods}[sys.argv[1]](sys.argv[2])
