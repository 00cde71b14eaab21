"""A certificate of this machine's own, made for one test."""

import datetime as dt
import ssl

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from tests.fakes.edge_kit import pem


def certificate(directory, name="localhost"):
    """Make a self-signed certificate for a host name, as strict verifiers want it.

    Returns:
        The certificate's file and the server context that uses it.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = dt.datetime.now(dt.UTC)
    builder = x509.CertificateBuilder(
        issuer_name=subject,
        subject_name=subject,
        public_key=key.public_key(),
        serial_number=1,
        not_valid_before=now - dt.timedelta(days=1),
        not_valid_after=now + dt.timedelta(days=1),
    )
    for extension, critical in _extensions(key.public_key(), name):
        builder = builder.add_extension(extension, critical=critical)
    certificate_file, key_file = directory / f"{name}.pem", directory / f"{name}.key"
    certificate_file.write_bytes(builder.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM))
    key_file.write_bytes(pem(key))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate_file, key_file)
    return certificate_file, context


def _extensions(key, name):
    usage = x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=True,
        crl_sign=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
    return [
        (x509.SubjectAlternativeName([x509.DNSName(name)]), False),
        (x509.BasicConstraints(ca=True, path_length=None), True),
        (usage, True),
        (x509.SubjectKeyIdentifier.from_public_key(key), False),
        (x509.AuthorityKeyIdentifier.from_issuer_public_key(key), False),
    ]
