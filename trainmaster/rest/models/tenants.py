"""Requests and answers about tenants (docs/tenants.md)."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.config import JsonDict

from trainmaster.api.tenancy import Allowance, Budget, Tenant
from trainmaster.rest.models.trainjobs import Amount, Count
from trainmaster.tenancy.tenants import Issued

_LONGEST_DAYS = 365


class AllowanceModel(BaseModel):
    """How much a tenant may have at a time."""

    model_config = ConfigDict(extra="forbid")

    jobs: Count = Field(default=100, ge=1, le=100_000, description="TrainJobs, running or finished.")
    cpu: Amount | None = Field(default=None, description="CPUs of all its Pods together.")
    memory: Amount | None = Field(default=None, description="Memory of all its Pods together.")
    gpus: Count | None = Field(default=None, ge=0, le=100_000, description="GPUs of all its Pods together.")
    pods: Count = Field(default=200, ge=1, le=100_000, description="Pods that have not finished.")
    pids: Count = Field(default=4096, ge=8, le=4_000_000, description="Processes and threads of all its Pods together.")
    objects: Count = Field(default=1000, ge=10, le=1_000_000, description="Objects of each kind; events twice as many.")
    object_bytes: Amount = Field(default="64Mi", description="All its objects together, as the server stores them.")
    storage: Amount | None = Field(
        default=None, description="On disk: claims, outputs, work directories, scratch, logs and history together."
    )

    def to_allowance(self) -> Allowance:
        return Allowance(
            self.jobs,
            self.cpu or "",
            self.memory or "",
            self.gpus,
            self.pods,
            self.pids,
            self.objects,
            self.object_bytes,
            self.storage or "",
        )


class TenantChange(BaseModel):
    """What is to become different; null lifts a limit, and what is left out stays."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"memory": "64Gi", "gpus": None}]})

    state: Literal["Active", "Disabled"] | None = Field(
        default=None,
        description="Active gives rights back, without a token; Disabled takes rights and tokens. null: as it is.",
    )

    jobs: Count | None = Field(default=None, ge=1, le=100_000)
    cpu: Amount | None = None
    memory: Amount | None = None
    gpus: Count | None = Field(default=None, ge=0, le=100_000)
    pods: Count | None = Field(default=None, ge=1, le=100_000)
    pids: Count | None = Field(default=None, ge=8, le=4_000_000)
    objects: Count | None = Field(default=None, ge=10, le=1_000_000)
    object_bytes: Amount | None = None
    storage: Amount | None = None

    def to_limits(self) -> dict[str, str | int | None]:
        return {name: getattr(self, name) for name in self.model_fields_set - {"state"}}


class SignUp(BaseModel):
    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"name": "ann"}]})

    name: str = Field(description="The tenant, which is also its namespace: lower-case letters, digits and dashes.")
    invitation: str = Field(default="", max_length=200, description="The code that an administrator gave you.")


class NewTenant(BaseModel):
    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"name": "ann", "allowance": {"jobs": 20, "gpus": 2}}]}
    )

    name: str = Field(description="The tenant, which is also its namespace: lower-case letters, digits and dashes.")
    allowance: AllowanceModel = Field(default_factory=AllowanceModel)
    token_days: Count = Field(default=90, ge=1, le=_LONGEST_DAYS, description="How long its token lives.")
    without_walls: bool = Field(
        default=False, description="Also where this machine cannot keep the programs of tenants apart."
    )


class PreparedTenant(BaseModel):
    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"allowance": {"jobs": 20, "gpus": 2}}]})

    allowance: AllowanceModel = Field(default_factory=AllowanceModel)
    without_walls: bool = Field(
        default=False, description="Also where this machine cannot keep the programs of tenants apart."
    )


class NewToken(BaseModel):
    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"token_days": 30}]})

    token_days: Count = Field(default=90, ge=1, le=_LONGEST_DAYS, description="How long the new token lives.")


_TENANT: JsonDict = {
    "tenant": "ann",
    "namespace": "ann",
    "state": "Active",
    "created_at": "2026-11-15T20:00:00Z",
    "unix_user": 200_001,
    "tokens_expire_at": ["2027-02-13T20:00:00Z"],
    "budgets": [{"name": "memory", "resource": "limits.memory", "used": "2Gi", "allowed": "64Gi"}],
}
_TOKEN: JsonDict = {
    "tenant": "ann",
    "namespace": "ann",
    "token": "eyJhbGciOi...",
    "expires_at": "2027-02-13T20:00:00Z",
}
_ME: JsonDict = {
    "user": "system:serviceaccount:ann:tenant",
    "tenant": "ann",
    "namespace": "ann",
    "user_id": "ann",
    "administrator": False,
    "read_only": False,
    "quota": [{"resource": "count/trainjobs.trainer.kubeflow.org", "allowed": "100", "used": "1"}],
}


class TokenAnswer(BaseModel):
    model_config = ConfigDict(json_schema_extra={"examples": [_TOKEN]})

    tenant: str
    namespace: str
    token: str = Field(description="Shown this once, and stored nowhere.")
    expires_at: str

    @classmethod
    def build(cls, issued: Issued) -> TokenAnswer:
        return cls(tenant=issued.tenant, namespace=issued.namespace, token=issued.token, expires_at=issued.expires)


class BudgetAnswer(BaseModel):
    name: str = Field(description="As in the tenant's allowance.")
    resource: str = Field(description="As the quota names it.")
    used: str
    allowed: str

    @classmethod
    def build(cls, budget: Budget) -> BudgetAnswer:
        return cls(name=budget.name, resource=budget.resource, used=budget.used, allowed=budget.allowed)


class TenantAnswer(BaseModel):
    model_config = ConfigDict(json_schema_extra={"examples": [_TENANT]})

    tenant: str
    namespace: str
    state: Literal["Active", "Disabled"]
    created_at: str
    unix_user: int | None = Field(description="Whom its Pods run as on one machine; null without walls.")
    tokens_expire_at: list[str]
    budgets: list[BudgetAnswer] = Field(description="Its use against every limit of its quota.")

    @classmethod
    def build(cls, tenant: Tenant) -> TenantAnswer:
        return cls(
            tenant=tenant.name,
            namespace=tenant.namespace,
            state="Disabled" if tenant.disabled else "Active",
            created_at=tenant.created,
            unix_user=tenant.unix_user,
            tokens_expire_at=list(tenant.tokens),
            budgets=[BudgetAnswer.build(budget) for budget in tenant.budgets],
        )


class Tenants(BaseModel):
    model_config = ConfigDict(json_schema_extra={"examples": [{"items": [_TENANT]}]})

    items: list[TenantAnswer]


class Use(BaseModel):
    resource: str = Field(description="As Kubernetes quotas name it, such as requests.cpu.")
    allowed: str
    used: str


class Me(BaseModel):
    """Who the token is, and what they have."""

    model_config = ConfigDict(json_schema_extra={"examples": [_ME]})

    user: str
    tenant: str | None = Field(description="The caller's tenant; null for others.")
    namespace: str | None
    user_id: str = Field(description="What they send as `user_id`, and what their jobs are named after.")
    administrator: bool
    read_only: bool = Field(description="Whether this is a read-only login, which may change nothing.")
    quota: list[Use] = Field(description="Of the tenant's namespace.")
