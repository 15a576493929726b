"""Golden list: every field of the existing API still exists, under the same name."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from eso_api.kinds import installed_kinds
from eso_api.secretstore import PROVIDER_KEYS

REMOTE_REF = "key property version metadataPolicy conversionStrategy decodingStrategy nullBytePolicy"
TEMPLATE = """
    type engineVersion mergePolicy metadata.labels metadata.annotations metadata.finalizers data
    templateFrom[].configMap.name templateFrom[].configMap.items[].key templateFrom[].configMap.items[].templateAs
    templateFrom[].secret.name templateFrom[].secret.items[].key templateFrom[].secret.items[].templateAs
    templateFrom[].literal templateFrom[].target templateFrom[].valuesDecodingStrategy
"""
STORE_REF = "apiVersion kind name"
GENERATOR_REF = "apiVersion kind name"
CONDITION = "type status reason message lastTransitionTime"
SECRET_KEY = "name namespace key"
SERVICE_ACCOUNT = "name namespace audiences"
AWS_AUTH = """
    jwt.serviceAccountRef secretRef.accessKeyIDSecretRef secretRef.secretAccessKeySecretRef
    secretRef.sessionTokenSecretRef
"""


def below(prefix: str, fields: str) -> str:
    return " ".join(f"{prefix}.{field}" for field in fields.split())


EXTERNAL_SECRET_SPEC = " ".join(
    [
        below("secretStoreRef", STORE_REF),
        "refreshPolicy refreshInterval refreshTrigger",
        "syncWindows.kind syncWindows.windows[].schedule syncWindows.windows[].duration",
        "target.name target.creationPolicy target.deletionPolicy target.immutable",
        "target.manifest.apiVersion target.manifest.kind",
        below("target.template", TEMPLATE),
        "data[].secretKey",
        below("data[].remoteRef", REMOTE_REF),
        below("data[].sourceRef.storeRef", STORE_REF),
        below("data[].sourceRef.generatorRef", GENERATOR_REF),
        below("dataFrom[].extract", REMOTE_REF),
        "dataFrom[].find.path dataFrom[].find.name.regexp dataFrom[].find.tags",
        below("dataFrom[].find", "conversionStrategy decodingStrategy nullBytePolicy"),
        below("dataFrom[].rewrite[]", "regexp.source regexp.target transform.template"),
        below("dataFrom[].rewrite[].merge", "into priority priorityPolicy conflictPolicy strategy"),
        below("dataFrom[].sourceRef.storeRef", STORE_REF),
        below("dataFrom[].sourceRef.generatorRef", GENERATOR_REF),
    ]
)
PUSH_SECRET_SPEC = " ".join(
    [
        "refreshInterval updatePolicy deletionPolicy",
        below("secretStoreRefs[]", "apiVersion kind name labelSelector.matchLabels labelSelector.matchExpressions"),
        "selector.secret.name selector.secret.selector",
        below("selector.generatorRef", GENERATOR_REF),
        below(
            "data[]", "match.secretKey match.remoteRef.remoteKey match.remoteRef.property metadata conversionStrategy"
        ),
        below("dataTo[]", "storeRef.name storeRef.kind storeRef.labelSelector remoteKey match.regexp"),
        below("dataTo[]", "rewrite[].regexp.source rewrite[].regexp.target rewrite[].transform.template"),
        below("dataTo[]", "metadata conversionStrategy"),
        below("template", TEMPLATE),
    ]
)
INFISICAL_AUTH = """
    universalAuthCredentials.clientId universalAuthCredentials.clientSecret azureAuthCredentials.identityId
    azureAuthCredentials.resource gcpIdTokenAuthCredentials.identityId gcpIamAuthCredentials.identityId
    gcpIamAuthCredentials.serviceAccountKeyFilePath jwtAuthCredentials.identityId jwtAuthCredentials.jwt
    ldapAuthCredentials.identityId ldapAuthCredentials.ldapPassword ldapAuthCredentials.ldapUsername
    ociAuthCredentials.identityId ociAuthCredentials.privateKey ociAuthCredentials.privateKeyPassphrase
    ociAuthCredentials.fingerprint ociAuthCredentials.userId ociAuthCredentials.tenancyId ociAuthCredentials.region
    kubernetesAuthCredentials.identityId kubernetesAuthCredentials.serviceAccountTokenPath
    awsAuthCredentials.identityId tokenAuthCredentials.accessToken
"""
VAULT = """
    server path version namespace caBundle caProvider.type caProvider.name caProvider.key caProvider.namespace
    tls.certSecretRef tls.keySecretRef readYourWrites forwardInconsistent headers checkAndSet.required
    auth.namespace auth.tokenSecretRef
    auth.appRole.path auth.appRole.roleId auth.appRole.roleRef auth.appRole.secretRef
    auth.kubernetes.mountPath auth.kubernetes.role auth.kubernetes.serviceAccountRef auth.kubernetes.secretRef
    auth.ldap.path auth.ldap.username auth.ldap.secretRef auth.userPass.path auth.userPass.username
    auth.userPass.secretRef auth.jwt.path auth.jwt.role auth.jwt.secretRef
    auth.jwt.kubernetesServiceAccountToken.serviceAccountRef auth.jwt.kubernetesServiceAccountToken.audiences
    auth.jwt.kubernetesServiceAccountToken.expirationSeconds
    auth.cert.path auth.cert.clientCert auth.cert.secretRef auth.cert.vaultRole
    auth.iam.path auth.iam.region auth.iam.vaultRole auth.iam.role auth.iam.externalID auth.iam.vaultAwsIamServerID
    auth.iam.jwt.serviceAccountRef auth.iam.secretRef.accessKeyIDSecretRef
    auth.gcp.path auth.gcp.role auth.gcp.secretRef auth.gcp.workloadIdentity auth.gcp.serviceAccountRef
"""
WEBHOOK = """
    method url headers auth.ntlm.usernameSecret auth.ntlm.passwordSecret body timeout result.jsonPath secrets[].name
    secrets[].secretRef caBundle caProvider
"""
STORE_SPEC = " ".join(
    [
        "controller retrySettings.maxRetries retrySettings.retryInterval refreshInterval",
        "conditions[].namespaceSelector conditions[].namespaces conditions[].namespaceRegexes",
        below("provider.fake", "data[].key data[].value data[].version validationResult"),
        below("provider.kubernetes", "server.url server.caBundle server.caProvider auth.cert.clientCert"),
        below("provider.kubernetes", "auth.cert.clientKey auth.token.bearerToken authRef remoteNamespace"),
        below("provider.kubernetes.auth.serviceAccount", SERVICE_ACCOUNT),
        below("provider.vault", VAULT),
        below("provider.aws", "service region role additionalRoles externalID sessionTags[].key sessionTags[].value"),
        below("provider.aws", "transitiveTagKeys sessionTagsPolicy customSessionTags prefix"),
        below("provider.aws.secretsManager", "forceDeleteWithoutRecovery recoveryWindowInDays"),
        below("provider.aws.auth", AWS_AUTH),
        below("provider.aws.auth.secretRef.accessKeyIDSecretRef", SECRET_KEY),
        below("provider.doppler", "project config nameTransformer format"),
        below("provider.doppler.auth", "secretRef.dopplerToken oidcConfig.identity oidcConfig.serviceAccountRef"),
        below("provider.doppler.auth", "oidcConfig.expirationSeconds"),
        below("provider.gcpsm", "projectID location secretVersionSelectionPolicy"),
        below("provider.gcpsm.auth", "secretRef.secretAccessKeySecretRef workloadIdentity.serviceAccountRef"),
        below("provider.gcpsm.auth.workloadIdentity", "clusterLocation clusterName clusterProjectID"),
        below("provider.gcpsm.auth.workloadIdentityFederation", "credConfig serviceAccountRef awsSecurityCredentials"),
        below(
            "provider.gcpsm.auth.workloadIdentityFederation", "audience externalTokenEndpoint gcpServiceAccountEmail"
        ),
        below("provider.gitlab", "url auth.SecretRef.accessToken projectID groupIDs inheritFromGroups environment"),
        below("provider.gitlab", "caBundle caProvider"),
        below("provider.github", "url uploadURL auth.privateKey appID installationID organization repository"),
        below("provider.github", "environment orgSecretVisibility"),
        below(
            "provider.azurekv", "authType vaultUrl tenantId environmentType serviceAccountRef identityId useAzureSDK"
        ),
        below("provider.azurekv", "customCloudConfig authSecretRef.clientId authSecretRef.clientSecret"),
        below("provider.azurekv", "authSecretRef.clientCertificate authSecretRef.tenantId"),
        below("provider.onepassword", "auth.secretRef.connectTokenSecretRef connectHost vaults"),
        below("provider.onepasswordSDK", "auth.serviceAccountSecretRef vault environment cache.ttl cache.maxSize"),
        below("provider.onepasswordSDK", "integrationInfo.name integrationInfo.version"),
        below("provider.bitwardensecretsmanager", "apiURL identityURL bitwardenServerSDKURL caBundle caProvider"),
        below("provider.bitwardensecretsmanager", "organizationID projectID auth.secretRef.credentials"),
        below("provider.webhook", WEBHOOK),
        below("provider.openBao", "server auth.appRole.roleId auth.appRole.roleRef auth.tokenSecretRef auth.userPass"),
        below("provider.openBao", "auth.namespace caBundle caProvider namespace path version"),
        below("provider.plugin", "address providerRef.kind providerRef.name auth classRef.name inline.spec"),
    ]
)
POLICY = """
    controller refreshInterval refreshTrigger gatingPolicy retrySettings.maxRetries retrySettings.retryInterval timeouts
"""
PROVIDER_CONFIG = """
    address classRef.name auth.clientCertificate auth.serviceAccountRef providerRef.apiVersion providerRef.kind
    providerRef.name providerRef.namespace inline.kind inline.spec
"""
CLUSTER_POLICY = f"{POLICY} conditions[].namespaceSelector conditions[].namespaces conditions[].namespaceRegexes"
PASSWORD = "length digits symbols symbolCharacters noUpper allowRepeat secretKeys encoding"

FIELDS = {
    "externalsecrets.external-secrets.io": (
        below("spec", EXTERNAL_SECRET_SPEC),
        below("status", "refreshTime syncedResourceVersion binding.name outcomes[].path outcomes[].reason"),
        below("status.conditions[]", CONDITION),
    ),
    "clusterexternalsecrets.external-secrets.io": (
        below("spec.externalSecretSpec", EXTERNAL_SECRET_SPEC),
        below(
            "spec", "externalSecretName externalSecretMetadata.labels externalSecretMetadata.annotations refreshTime"
        ),
        below("spec", "namespaceSelector.matchLabels namespaceSelectors[].matchLabels namespaces"),
        below("status", "externalSecretName failedNamespaces[].namespace failedNamespaces[].reason"),
        below("status", "provisionedNamespaces conditions[].type conditions[].status conditions[].message"),
    ),
    "pushsecrets.external-secrets.io": (
        below("spec", PUSH_SECRET_SPEC),
        below("status", "refreshTime syncedResourceVersion syncedPushSecrets{}{}.match.remoteRef.remoteKey"),
        below("status.conditions[]", CONDITION),
    ),
    "clusterpushsecrets.external-secrets.io": (
        below("spec.pushSecretSpec", PUSH_SECRET_SPEC),
        below("spec", "refreshTime pushSecretName pushSecretMetadata.labels pushSecretMetadata.annotations"),
        below("spec", "namespaceSelectors[].matchLabels namespaceSelectors[].matchExpressions[].operator"),
        below("status", "failedNamespaces[].namespace provisionedNamespaces pushSecretName conditions[].type"),
    ),
    **{
        f"{plural}.external-secrets.io": (
            below("spec", STORE_SPEC),
            "status.capabilities",
            "status.conditions[].reason",
        )
        for plural in ("secretstores", "clustersecretstores")
    },
    "passwords.generators.external-secrets.io": (below("spec", PASSWORD),),
    "fakes.generators.external-secrets.io": ("spec.data spec.controller",),
    "sshkeys.generators.external-secrets.io": ("spec.keyType spec.keySize spec.comment",),
    "mfas.generators.external-secrets.io": (below("spec", "secret length timePeriod algorithm when"),),
    "ecrauthorizationtokens.generators.external-secrets.io": (
        below("spec", "region role scope"),
        below("spec.auth", AWS_AUTH),
    ),
    "stssessiontokens.generators.external-secrets.io": (
        below("spec", "region role requestParameters.sessionDuration requestParameters.serialNumber"),
        below("spec", "requestParameters.tokenCode"),
        below("spec.auth", AWS_AUTH),
    ),
    "gcraccesstokens.generators.external-secrets.io": (
        below("spec", "projectID auth.secretRef auth.workloadIdentity auth.workloadIdentityFederation"),
    ),
    "acraccesstokens.generators.external-secrets.io": (
        below("spec", "registry tenantId scope environmentType auth.servicePrincipal.secretRef.clientId"),
        below("spec", "auth.managedIdentity.identityId auth.workloadIdentity.serviceAccountRef"),
    ),
    "githubaccesstokens.generators.external-secrets.io": (
        below("spec", "appID installID url repositories permissions auth.privateKey.secretRef"),
    ),
    "gitlabdeploytokens.generators.external-secrets.io": (
        below("spec", "url projectID groupID name scopes expiresAt username auth.token.secretRef"),
    ),
    "quayaccesstokens.generators.external-secrets.io": (below("spec", "url robotAccount serviceAccountRef"),),
    "cloudsmithaccesstokens.generators.external-secrets.io": (
        below("spec", "apiUrl orgSlug serviceSlug serviceAccountRef"),
    ),
    "grafanas.generators.external-secrets.io": (
        below("spec", "url auth.token auth.basic.username auth.basic.password"),
        below("spec.serviceAccount", "name role secondsToLive"),
    ),
    "vaultdynamicsecrets.generators.external-secrets.io": (
        below("spec", "path method parameters getParameters resultType allowEmptyResponse retrySettings controller"),
        below("spec.provider", VAULT),
    ),
    "webhooks.generators.external-secrets.io": (below("spec", WEBHOOK),),
    "beyondtrustworkloadcredentialsdynamicsecrets.generators.external-secrets.io": (
        below("spec", "retrySettings controller provider.folderPath provider.auth.apikey.token provider.server.siteId"),
    ),
    "clustergenerators.generators.external-secrets.io": (
        "spec.kind",
        below("spec.generator.passwordSpec", PASSWORD),
        below(
            "spec.generator",
            """acrAccessTokenSpec beyondtrustWorkloadCredentialsDynamicSecretSpec cloudsmithAccessTokenSpec
            ecrAuthorizationTokenSpec fakeSpec gcrAccessTokenSpec githubAccessTokenSpec gitlabDeployTokenSpec
            quayAccessTokenSpec sshKeySpec stsSessionTokenSpec uuidSpec vaultDynamicSecretSpec webhookSpec
            grafanaSpec mfaSpec""",
        ),
    ),
    "generatorstates.generators.external-secrets.io": (
        below("spec", "garbageCollectionDeadline resource state"),
        "status.conditions[].type",
    ),
    "secretstores.secretstore.external-secrets.io": (
        below("spec", POLICY),
        below("spec.providerConfig", PROVIDER_CONFIG),
        "status.capabilities status.conditions[].type status.operations",
    ),
    "clustersecretstores.secretstore.external-secrets.io": (
        below("spec", f"{CLUSTER_POLICY} authenticationScope"),
        below("spec.providerConfig", PROVIDER_CONFIG),
    ),
    "generators.generator.external-secrets.io": (below("spec", POLICY), below("spec.providerConfig", PROVIDER_CONFIG)),
    "clustergenerators.generator.external-secrets.io": (
        below("spec", f"{CLUSTER_POLICY} authenticationNamespace"),
        below("spec.providerConfig", PROVIDER_CONFIG),
    ),
    "providers.external-secrets.io": (
        below("spec", f"{POLICY} address classRef auth providerRef.apiVersion providerRef.kind providerRef.name"),
        below("spec.config", "address providerRef.kind"),
    ),
    "clusterproviders.external-secrets.io": (
        below("spec", f"{CLUSTER_POLICY} authenticationScope address providerRef.namespace"),
    ),
    **{
        f"{plural}.external-secrets.io": (
            below(
                "spec", "address tls.mode tls.secretRef tls.serverName serves[].group serves[].version serves[].kind"
            ),
            below("spec", "allowedNamespaces[].namespaceSelector limits v1ProviderKeys"),
            below("status", "conditions[].type protocol providerVersion kinds[].group kinds[].version kinds[].kind"),
            below("status", "kinds[].operations certificate.notAfter endpoints"),
        )
        for plural in ("providerclasses", "clusterproviderclasses")
    },
    "fakes.provider.secretstore.external-secrets.io": (
        below("spec", "data[].key data[].value data[].version validationResult"),
        "status.conditions[].type",
    ),
    "awssecretmanagers.provider.secretstore.external-secrets.io": (
        "spec.role spec.region",
        below("spec.auth", AWS_AUTH),
        "status.conditions[].type",
    ),
    **{
        f"{plural}.provider.secretstore.external-secrets.io": (
            below("spec", "hostAPI caBundle caProvider secretsScope.projectSlug secretsScope.environmentSlug"),
            below("spec.secretsScope", "organizationSlug secretsPath recursive expandSecretReferences"),
            below("spec.auth", INFISICAL_AUTH),
        )
        for plural in ("infisicals", "clusterinfisicals")
    },
    **{
        f"{plural}.provider.secretstore.external-secrets.io": (
            below("spec", "akeylessGWApiURL ignoreCache caBundle caProvider"),
            below("spec.authSecretRef", "serviceAccountRef secretRef.accessID secretRef.accessType"),
            below("spec.authSecretRef", "secretRef.accessTypeParam kubernetesAuth.accessID kubernetesAuth.k8sConfName"),
            below("spec.authSecretRef.kubernetesAuth", "serviceAccountRef secretRef"),
        )
        for plural in ("akeylesses", "clusterakeylesses")
    },
    "passwords.provider.generator.external-secrets.io": (below("spec", PASSWORD),),
    "clustersecretsmanagers.aws.provider.external-secrets.io": (
        below("spec", "region role common.authenticationScope common.conditions[].namespaces"),
    ),
}

PROVIDERS = """
    akeyless alibaba aws azurekv barbican beyondtrust beyondtrustworkloadcredentials bitwardensecretsmanager chef
    cloudrusm conjur crd delinea device42 doppler dvls fake fortanix gcpsm github gitlab ibm infisical keepersecurity
    kubernetes nebiusmysterybox ngrok onboardbase onepassword onepasswordSDK openBao oracle ovh passbolt passworddepot
    plugin previder pulumi scaleway secretserver senhasegura vault volcengine webhook yandexcertificatemanager
    yandexlockbox
"""

KIND_OF = {kind.crd_name: kind for kind in installed_kinds()}
CASES = [
    pytest.param(name, version, group, id=f"{name} {version} {group.split()[0].rpartition('.')[0] or group.split()[0]}")
    for name, groups in FIELDS.items()
    for version in KIND_OF[name].versions
    for group in groups
]


@cache
def paths(name: str, version: str) -> frozenset[str]:
    """Return every field of one CRD version, written like `spec.data[].secretKey`."""
    entry = next(entry for entry in KIND_OF[name].crd()["spec"]["versions"] if entry["name"] == version)
    return frozenset(_paths(entry["schema"]["openAPIV3Schema"], ""))


def _paths(schema: dict[str, Any], prefix: str) -> list[str]:
    found = [prefix] if prefix else []
    for name, nested in schema.get("properties", {}).items():
        found += _paths(nested, f"{prefix}.{name}" if prefix else name)
    if isinstance(schema.get("items"), dict):
        found += _paths(schema["items"], f"{prefix}[]")
    if isinstance(schema.get("additionalProperties"), dict):
        found += _paths(schema["additionalProperties"], f"{prefix}{{}}")
    return found


@pytest.mark.parametrize(("name", "version", "fields"), CASES)
def test_every_field_of_the_existing_api_is_there(name: str, version: str, fields: str) -> None:
    missing = set(fields.split()) - paths(name, version)

    assert missing == set()


def test_every_provider_key_of_the_existing_api_is_accepted() -> None:
    assert set(PROVIDERS.split()) == PROVIDER_KEYS
