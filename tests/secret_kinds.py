"""Secrets of many kinds, made up: each as its issuer writes it, none of them valid."""

from __future__ import annotations

import base64
import random
import string

_DRAW = random.Random(20_26)
_LETTERS, _HEX, _UPPER = (
    string.ascii_letters + string.digits,
    string.digits + "abcdef",
    string.ascii_uppercase + string.digits,
)


def _of(alphabet, count):
    return "".join(_DRAW.choice(alphabet) for _ in range(count))


def _base64(count):
    return base64.b64encode(_DRAW.randbytes(count)).decode()


_SECRET, _PASSWORD = _of(_LETTERS, 24), "correct-horse-battery"
_LISTED = (
    ("hugging face", s := f"hf_{_of(_LETTERS, 34)}", s),
    ("openai", s := f"sk-proj-{_of(_LETTERS, 48)}", s),
    ("anthropic", s := f"sk-ant-api03-{_of(_LETTERS, 93)}AA", s),
    ("github classic", s := f"ghp_{_of(_LETTERS, 36)}", s),
    ("github fine-grained", s := f"github_pat_{_of(_LETTERS, 22)}_{_of(_LETTERS, 59)}", s),
    ("gitlab", s := f"glpat-{_of(_LETTERS, 20)}", s),
    ("aws key id", s := f"AKIA{_of(string.ascii_uppercase, 16)}", s),
    ("aws temporary key id", s := f"ASIA{_of(string.ascii_uppercase, 16)}", s),
    ("aws secret key", s := f"{_of(_LETTERS, 19)}/{_of(_LETTERS, 9)}+{_of(_LETTERS, 10)}", "--aws-secret-access-key", s),
    ("google api", s := f"AIza{_of(_LETTERS, 35)}", s),
    ("google oauth", s := f"ya29.{_of(_LETTERS, 60)}", s),
    ("google client", s := f"GOCSPX-{_of(_LETTERS, 28)}", s),
    ("azure storage", s := _base64(64), f"DefaultEndpointsProtocol=https;AccountName=a;AccountKey={s};EndpointSuffix=b"),
    ("azure signature", s := f"{_of(_LETTERS, 43)}%3D", f"https://a.blob.core.windows.net/c?sv=2024-01-01&sig={s}"),
    ("nvidia", s := f"nvapi-{_of(_LETTERS, 64)}", s),
    ("weights and biases", s := _of(_HEX, 40), s),
    ("weights and biases v1", s := f"wandb_v1_{_of(_LETTERS, 40)}", s),
    ("neptune", s := base64.b64encode(b'{"api_address":"https://x","api_key":"' + _SECRET.encode() + b'"}').decode(), s),
    ("comet", s := _of(_LETTERS, 25), f"COMET_API_KEY={s}"),
    ("databricks", s := f"dapi{_of(_HEX, 32)}", s),
    ("slack", s := f"xoxb-{_of(string.digits, 12)}-{_of(string.digits, 12)}-{_of(_LETTERS, 24)}", s),
    ("slack webhook", s := f"{_of(_UPPER, 9)}/{_of(_UPPER, 9)}/{_of(_LETTERS, 24)}", f"https://hooks.slack.com/services/{s}"),
    ("discord webhook", s := _of(_LETTERS, 68), f"https://discord.com/api/webhooks/{_of(string.digits, 18)}/{s}"),
    ("telegram", s := f"{_of(string.digits, 10)}:AA{_of(_LETTERS, 33)}", s),
    ("sendgrid", s := f"SG.{_of(_LETTERS, 22)}.{_of(_LETTERS, 43)}", s),
    ("mailchimp", s := f"{_of(_HEX, 32)}-us12", s),
    ("stripe", s := f"sk_live_{_of(_LETTERS, 24)}", s),
    ("twilio", s := f"SK{_of(_HEX, 32)}", s),
    ("square", s := f"sq0csp-{_of(_LETTERS, 43)}", s),
    ("npm", s := f"npm_{_of(_LETTERS, 36)}", s),
    ("pypi", s := f"pypi-AgEIcHlwaS5vcmc{_of(_LETTERS, 80)}", s),
    ("docker hub", s := f"dckr_pat_{_of(_LETTERS, 27)}", s),
    ("digitalocean", s := f"dop_v1_{_of(_HEX, 64)}", s),
    ("hashicorp vault", s := f"hvs.{_of(_LETTERS, 90)}", s),
    ("grafana", s := f"glsa_{_of(_LETTERS, 32)}_{_of(_HEX, 8)}", s),
    ("linear", s := f"lin_api_{_of(_LETTERS, 40)}", s),
    ("postman", s := f"PMAK-{_of(_HEX, 24)}-{_of(_HEX, 34)}", s),
    ("new relic", s := f"NRAK-{_of(_UPPER, 27)}", s),
    ("artifactory", s := f"AKCp{_of(_LETTERS, 69)}", s),
    ("age", s := f"AGE-SECRET-KEY-1{_of(_UPPER, 58)}", s),
    ("json web token", s := f"eyJ{_of(_LETTERS, 33)}.eyJ{_of(_LETTERS, 60)}.{_of(_LETTERS, 43)}", s),
    ("private key", s := _of(_LETTERS, 64), f"-----BEGIN OPENSSH PRIVATE KEY-----\n{s}\n-----END OPENSSH PRIVATE KEY-----"),
    ("random letters", s := _of(_LETTERS, 40), s),
    ("random base64", s := _base64(30) + "+/8=", s),
    ("password of an option", _PASSWORD, "--db-password", _PASSWORD),
    ("password assigned", _PASSWORD, f"+db.passwd={_PASSWORD}"),
    ("password in an address", _PASSWORD, f"postgres://me:{_PASSWORD}@db/x"),
    ("password in JSON", _PASSWORD, f'{{"password": "{_PASSWORD}"}}'),
    ("header", _SECRET, "-H", f"Authorization: Bearer {_SECRET}"),
    ("password after -p", _SECRET, "sshpass", "-p", _SECRET),
    ("user and password", _PASSWORD, "curl", "-u", f"me:{_PASSWORD}"),
    ("user and password assigned", _PASSWORD, "curl", f"--user=me:{_PASSWORD}"),
    ("user and password in one word", _PASSWORD, "curl", f"-ume:{_PASSWORD}"),
    ("option of a script", _PASSWORD, "bash", "-c", f"python train.py --password {_PASSWORD} --lr 1"),
    ("user of a script", _PASSWORD, "sh", "-c", f"curl -u me:{_PASSWORD} https://x; sshpass -p {_PASSWORD} ssh x"),
    ("variable of a container", _PASSWORD, "docker", "run", f"--env=WANDB_API_KEY={_PASSWORD}"),
    ("argument of an option", _PASSWORD, f"--kwargs=password={_PASSWORD}"),
    ("member of a configuration", _PASSWORD, "--opts", "DB.PASSWORD", _PASSWORD),
    ("member of a group", _PASSWORD, f"db/pg.password={_PASSWORD}"),
    ("member of a package", _PASSWORD, f"db@x.password={_PASSWORD}"),
    ("token behind a plain word", _PASSWORD, "--bypass-token", _PASSWORD, f"--survey-monkey-token={_PASSWORD}"),
    ("comma in JSON", _PASSWORD, f'{{"password":"a,{_PASSWORD}"}}'),
    ("blank in quotes", _PASSWORD, f"password='a {_PASSWORD} b'"),
    ("list in JSON", _PASSWORD, f'{{"password": ["a", "{_PASSWORD}"]}}'),
    ("JSON in JSON", _PASSWORD, f'{{\\"password\\":\\"a {_PASSWORD}\\"}}'),
    ("behind a fragment", _PASSWORD, f"https://x/#access_token={_PASSWORD}"),
    ("argument of a function", _PASSWORD, "python", "-c", f"login(token='{_PASSWORD}')"),
    ("member of the environment", _PASSWORD, f"os.environ['DB_PASSWORD']='{_PASSWORD}'"),
    ("an @ in an address", _PASSWORD, f"postgres://me:a@{_PASSWORD}@db/x"),
    ("a slash in an address", _PASSWORD, f"postgres://me:a/{_PASSWORD}@db/x"),
    ("header with a token", _PASSWORD, "curl", "-H", f"Authorization: Token {_PASSWORD}"),
    ("beside a name of C++", _PASSWORD, f"at::copy<int> password={_PASSWORD}"),
)  # fmt: skip
#: Name of the kind → the words of a command in which it stands, and the secret itself.
KINDS: dict[str, tuple[list[str], str]] = {name: (words, secret) for name, secret, *words in _LISTED}
